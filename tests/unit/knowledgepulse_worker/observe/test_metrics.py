"""Metrics: their names are a contract, their labels are bounded, and no input breaks them."""

import math
import re
from collections import Counter
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from knowledgepulse_schemas.dead_letter import FORMS, REASONS
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.recent import PublishedTrace
from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.settings import FleetSettings
from support.scored import scored_record

LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

EXEMPLAR = re.compile(r' # \{trace_id="(?:\\[\\"n]|[^\\"])*"\} \S+ \S+$', re.MULTILINE)

HOSTILE_IDS = {
    "5,000 characters": "kp:trace:" + "x" * 5000,
    "one too long for an exemplar": "x" * 129,
    "lone surrogate": "kp:trace:\ud800",
    "not ASCII": "kp:trace:größer",
    "line breaks": "kp:trace:\n# EOF\nkp_traces_total 5",
    "quotes and backslashes": 'kp:trace:"} 1 \\" # {',
    "null": "kp:trace:\0",
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(Policy(), budget=0.1, registry=CollectorRegistry())


def families(metrics: Metrics, accept: str = "") -> dict[str, Metric]:
    _, page = metrics.render(accept, content=True)
    parse = parse_openmetrics if "openmetrics" in accept else parse_text
    return {family.name: family for family in parse(page.decode())}


def values(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of the samples with a name by their label values, as text."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def buckets(metrics: Metrics, name: str) -> list[float]:
    bounds = {
        float(sample.labels["le"])
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"{name}_bucket"
    }
    return sorted(bounds - {math.inf})


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("kp_quality_score", [step / 20 for step in range(1, 21)]),
        ("kp_dimension_score", [step / 10 for step in range(1, 11)]),
        ("kp_scoring_seconds", LATENCY),
        ("kp_embedding_batch_size", [1, 2, 4, 8, 16, 32, 64]),
        ("kp_end_to_end_seconds", [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600]),
    ],
)
def test_buckets_have_the_boundaries_of_the_dashboards(metrics, name, bounds):
    assert buckets(metrics, name) == list(bounds)


@pytest.mark.parametrize("budget", [0.25, 0.1, 7.0])
def test_the_budget_is_a_bucket_boundary(budget):
    metrics = Metrics(Policy(), budget, CollectorRegistry())

    assert buckets(metrics, "kp_scoring_seconds") == sorted({*LATENCY, budget})
    assert values(metrics, "kp_budget_seconds") == {(): budget}


def test_only_scores_beyond_the_budget_exceed_it(metrics):
    for seconds in (0.05, 0.1, 0.100001):
        metrics.traces.scored("kp:trace:1", seconds)

    assert values(metrics, "kp_budget_exceeded_total") == {(): 1}
    assert values(metrics, "kp_scoring_seconds_count") == {(): 3}


OUTCOMES = ("contribute", "rejected")
CLOSED = {
    "kp_traces_total": [(outcome,) for outcome in (*OUTCOMES, "dead_letter")],
    "kp_dead_letters_total": [(reason,) for reason in REASONS],
    "kp_dead_letter_forms_total": [(form,) for form in FORMS],
    "kp_stage_seconds_count": [
        (stage,) for stage in ("decode", "queue", "embed", "score", "redact", "commit")
    ],
    "kp_cache_resets_total": [("model",), ("rewind",), ("recreated",), ("lost",)],
    "kp_partitions": [("owned",), ("topic",)],
    "kp_quality_score_count": [*product(Policy().profiles, OUTCOMES)],
    "kp_dimension_score_count": [*product(Policy().profiles, DIMENSIONS)],
    "kp_shadow_decisions_total": [*product(OUTCOMES, OUTCOMES)],
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_label_sets_start_at_zero(metrics, name):
    """Otherwise, ``increase()`` misses the first event of each series."""
    assert values(metrics, name) == dict.fromkeys(CLOSED[name], 0)


def test_counters_without_labels_start_at_zero(metrics):
    counters = [family for family in metrics.registry.collect() if family.type == "counter"]
    without_labels = [sample for family in counters for sample in family.samples if not sample.labels]
    assert len(without_labels) > 5
    assert {sample.value for sample in without_labels} == {0}


CONTRIBUTED = Score(0.8, 0.5, 0.5, 0.5, 0.5, (), "code", 0.75, None)
REJECTED = msgspec.structs.replace(CONTRIBUTED, quality_score=0.2)


def test_events_are_counted(metrics):
    metrics.traces.finished({"contribute": 1, "rejected": 1, "dead_letter": 1}, [1.5, 0.0])
    metrics.traces.published(
        [PublishedTrace(score, score.decision, None, None, "code") for score in (CONTRIBUTED, REJECTED)]
    )
    metrics.traces.dead_lettered({"empty": 1})
    metrics.traces.stage("embed", 0.02)
    metrics.traces.admitted(0.5)
    metrics.embedding.embedded(4, 3, 2)
    metrics.embedding.failed()
    metrics.lanes.aborted("refused")
    metrics.traces.redacted("timeout", 0.5)
    metrics.lanes.cache_reset("model")
    metrics.lanes.in_flight(1, 300)

    assert values(metrics, "kp_traces_total") == {("contribute",): 1, ("rejected",): 1, ("dead_letter",): 1}
    assert values(metrics, "kp_dead_letters_total")["empty",] == 1
    assert values(metrics, "kp_quality_score_sum")["code", "contribute"] == 0.8
    assert values(metrics, "kp_end_to_end_seconds_sum") == {(): 1.5}
    assert values(metrics, "kp_end_to_end_seconds_count") == {(): 2}
    assert values(metrics, "kp_stage_seconds_sum")["embed",] == 0.02
    assert values(metrics, "kp_admission_wait_seconds_sum") == {(): 0.5}
    assert values(metrics, "kp_embedding_batch_size_sum") == {(): 4}
    assert values(metrics, "kp_embedding_truncated_total") == {(): 3}
    assert values(metrics, "kp_embedding_repeated_total") == {(): 2}
    assert values(metrics, "kp_embedding_errors_total") == {(): 1}
    assert values(metrics, "kp_aborted_transactions_total") == {
        ("rebalance",): 0,
        ("refused",): 1,
        ("throttled",): 0,
    }
    assert values(metrics, "kp_redactions_total")["timeout",] == 1
    assert values(metrics, "kp_stage_seconds_sum")["redact",] == 0.5
    assert values(metrics, "kp_cache_resets_total")["model",] == 1
    assert values(metrics, "kp_in_flight_records") == {(): 1}
    assert values(metrics, "kp_in_flight_bytes") == {(): 300}


FLEET = FleetSettings(agent_ids=("planner", "coder"), frameworks=("langgraph",))
NAMES_OF_PRODUCERS = st.none() | st.sampled_from(["planner", "coder", "langgraph", "other"]) | st.text()


@given(st.lists(st.tuples(NAMES_OF_PRODUCERS, NAMES_OF_PRODUCERS), max_size=60))
def test_a_producer_cannot_add_agents_or_frameworks(origins):
    """Names that the settings do not list count as ``other``, also those that metrics pages cannot show."""
    metrics = Metrics(Policy(), 0.1, CollectorRegistry(), FLEET)
    record = scored_record()

    metrics.traces.published(
        [
            PublishedTrace(record.score, record.score.decision, agent_id, framework, "code")
            for agent_id, framework in origins
        ]
    )

    for name, listed, of_origins in (
        ("kp_agent_traces_total", FLEET.agent_ids, [agent_id for agent_id, _ in origins]),
        ("kp_framework_traces_total", FLEET.frameworks, [framework for _, framework in origins]),
    ):
        expected = Counter(origin if origin in listed else "other" for origin in of_origins)
        assert values(metrics, name) == {
            (label, decision): expected[label] if decision == record.score.decision else 0
            for label in (*listed, "other")
            for decision in ("contribute", "rejected")
        }
    metrics.render("", content=True)


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
@pytest.mark.parametrize("trace_id", HOSTILE_IDS.values(), ids=HOSTILE_IDS)
def test_no_trace_id_breaks_an_observation_or_the_page(trace_id, accept):
    """prometheus_client rejects long exemplars in ``observe()``, and cannot encode lone surrogates."""
    pages = []
    for id_ in (trace_id, ""):
        metrics = Metrics(Policy(), budget=0.1, registry=CollectorRegistry())
        metrics.traces.scored(id_, 0.01)
        pages.append(metrics.render(accept, content=True)[1].decode())

    assert EXEMPLAR.sub("", pages[0]) == EXEMPLAR.sub("", pages[1])
    assert "kp_scoring_seconds_count 1.0" in pages[0]


@pytest.mark.parametrize("trace_id", ["kp:trace:b118bb02-52c2-540c-9489-401d35daa6df", "x" * 100])
def test_an_ordinary_trace_id_is_the_exemplar(metrics, trace_id):
    metrics.traces.scored(trace_id, 0.01)

    exemplars = [
        s.exemplar for s in families(metrics, OPENMETRICS)["kp_scoring_seconds"].samples if s.exemplar
    ]
    assert [(exemplar.labels, exemplar.value) for exemplar in exemplars] == [({"trace_id": trace_id}, 0.01)]


@pytest.mark.parametrize("trace_id", ["x" * 101, "kp:trace:größer", "kp:trace:\ud800", "kp:trace:\n"])
def test_long_and_non_ascii_ids_are_not_exemplars(metrics, trace_id):
    metrics.traces.scored(trace_id, 0.01)

    assert b"# {" not in metrics.render(OPENMETRICS, content=True)[1]


def test_without_content_no_page_contains_trace_ids(metrics):
    """Exemplars are trace ids."""
    metrics.traces.scored("kp:trace:secret", 0.01)
    content_type, page = metrics.render(OPENMETRICS, content=False)
    assert content_type.startswith("text/plain")
    assert b"kp_scoring_seconds_count 1.0" in page
    assert b"secret" not in page


def test_removes_only_the_series_of_a_lost_partition(metrics):
    gauges = {
        "kp_novelty_cache_entries": metrics.lanes.cache_size,
        "kp_last_commit_timestamp_seconds": metrics.lanes.committed,
        "kp_consumer_lag_records": metrics.stream.lag,
        "kp_open_transaction_records": metrics.stream.held_back,
        "kp_recovery_remaining_records": metrics.stream.recovering,
    }
    for set_gauge in gauges.values():
        set_gauge(1, 5)
        set_gauge(11, 6)

    metrics.partition_left(1)
    metrics.partition_left(7)

    assert {name: values(metrics, name) for name in gauges} == {name: {("11",): 6} for name in gauges}


def test_there_are_no_created_series(metrics):
    assert not [name for name in families(metrics) if name.endswith("_created")]
