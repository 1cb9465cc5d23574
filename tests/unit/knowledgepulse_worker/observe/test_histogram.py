"""Our histogram against the client library's own."""

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, PlatformCollector
from prometheus_client.openmetrics.exposition import generate_latest

from knowledgepulse_worker.observe.histogram import Histogram
from knowledgepulse_worker.observe.metric_registry import GroupRegistry, Makers, prepare_registry

BOUNDS = [0.05, 0.5, 1, 30, 3600]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(BOUNDS) | st.floats(0, 1e4))))
def test_a_page_equals_that_of_the_client_library(values):
    """Also at the bounds of the buckets, which belong to the bucket below."""
    pages = []
    for kind in (Histogram, prometheus_client.Histogram):
        registry = prepare_registry(CollectorRegistry())
        labelled = kind("some_seconds", "Some times", ["stage"], buckets=BOUNDS, registry=registry)
        plain = kind("other_seconds", "Other times", buckets=BOUNDS, registry=registry)
        for stage, seconds in values:
            labelled.labels(stage).observe(seconds)
            plain.observe(seconds)
        pages.append(generate_latest(registry).decode())
    assert pages[0] == pages[1]


def test_a_bucket_has_the_latest_exemplar():
    registry = CollectorRegistry()
    histogram = Histogram("some_seconds", "Some times", buckets=BOUNDS, registry=registry)

    for seconds, trace_id in [(0.1, "first"), (0.2, "second"), (0.3, None), (2.0, "other")]:
        histogram.observe(seconds, trace_id)

    page = generate_latest(registry).decode()
    exemplars = [line.split(" # ")[1].rsplit(" ", 1)[0] for line in page.splitlines() if " # " in line]
    assert exemplars == ['{trace_id="second"} 0.2', '{trace_id="other"} 2.0']


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.floats(allow_nan=False).map(lambda value: value + 0.0) | st.integers(0, 2**70).map(float)
"""No metric is NaN, and a zero has no sign."""


@given(TEXT, st.lists(st.tuples(TEXT, VALUES), max_size=4))
def test_a_group_s_page_is_the_library_s_to_the_byte(group, values):
    registry = prepare_registry(CollectorRegistry())
    PlatformCollector(registry=registry)  # which gets no group
    make = Makers(registry)
    kinds = [
        make.counter("kp_events", "Events", ["stage"]),
        make.gauge("kp_level", "A level", ["stage"]),
        make.histogram("kp_some_seconds", "Some times", ["stage"], buckets=BOUNDS),
        make.histogram("kp_other_seconds", "Other times", buckets=BOUNDS),
    ]
    for label, value in values:
        kinds[0].labels(label).inc(abs(value))
        kinds[1].labels(label).set(value)
        kinds[2].labels(label).observe(abs(value))
        kinds[3].observe(value)

    page = GroupRegistry(registry, group)

    assert page.text() == prometheus_client.generate_latest(page)
