"""Parsing a metrics page."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from knowledgepulse_worker.observe import page

BUCKETS = [0.1, 0.2, 0.5, 1.0]


def rendered(*values):
    registry = CollectorRegistry()
    histogram = Histogram("seconds", "Test", buckets=BUCKETS, registry=registry)
    for value in values:
        histogram.observe(value)
    return generate_latest(registry).decode()


def test_value_sums_the_matching_series():
    registry = CollectorRegistry()
    counter = Counter("traces", "Test", ["outcome", "domain"], registry=registry)
    counter.labels("contribute", "code").inc(2)
    counter.labels("contribute", "finance").inc(3)
    counter.labels("rejected", "code").inc(5)
    text = generate_latest(registry).decode()

    assert page.value(text, "traces_total") == 10
    assert page.value(text, "traces_total", outcome="contribute") == 5
    assert page.value(text, "traces_total", outcome="nothing") == 0
    assert page.value("", "traces_total") == 0


def test_an_empty_histogram_has_no_quantile():
    assert math.isnan(page.quantile(rendered(), "seconds", 0.5))
    assert math.isnan(page.quantile("", "seconds", 0.5))


def test_a_quantile_is_interpolated_within_its_bucket():
    assert page.quantile(rendered(0.15, 0.15, 0.15, 0.15), "seconds", 0.5) == pytest.approx(0.15)
    assert page.quantile(rendered(0.05, 0.3), "seconds", 0.75) == pytest.approx(0.35)


def test_a_quantile_beyond_the_last_bucket_is_its_boundary():
    assert page.quantile(rendered(7.0), "seconds", 0.99) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_value_with_its_rank(values, q):
    exact = sorted(values)[math.ceil(q * len(values)) - 1]
    upper = next(bucket for bucket in BUCKETS if exact <= bucket)
    lower = max([0.0, *(bucket for bucket in BUCKETS if bucket < upper)])
    assert lower <= page.quantile(rendered(*values), "seconds", q) <= upper
