"""Decisions as a lane counts them: beside the shadow policy's, and by the traces' origin."""

import json
from base64 import b64encode
from collections import deque
from types import SimpleNamespace

import msgspec
import pytest

from knowledgepulse_worker.observe.recent import LAST_RECORDS
from knowledgepulse_worker.policy import BUCKETS, Policy
from knowledgepulse_worker.scoring import rescore_all
from knowledgepulse_worker.scoring.rescore_report import DECISION_PAIRS
from knowledgepulse_worker.tools.common.scored_records import read_counted

ACTIVE = Policy(threshold=0.4)
SHADOW = Policy.model_validate(
    {
        "threshold": 0.25,
        "domains": {
            "code": {
                "threshold": 0.6,
                "weights": {
                    "complexity": 0.1,
                    "novelty": 0.6,
                    "tool_diversity": 0.2,
                    "outcome_confidence": 0.1,
                },
            }
        },
    }
)


def scored_records(harness):
    """Return the published records as `policy rescore` reads them."""
    return [
        read_counted(
            SimpleNamespace(value=output.value, headers=output.headers, timestamp=output.timestamp_ms)
        )
        for output in harness.outputs()
    ]


def shadow_of(harness, shadow):
    """Compare decisions with those of a shadow policy."""
    harness.services.policy.shadow = shadow


def compared(harness):
    return {
        routes: harness.metric("kp_shadow_decisions_total", active=routes[0], shadow=routes[1])
        for routes in DECISION_PAIRS
    }


async def test_the_shadow_reports_what_rescore_reports_on_the_same_records(make_harness, raw, real_traces):
    harness = make_harness(policy=ACTIVE)
    shadow_of(harness, SHADOW)

    await harness.processed(
        await harness.lane(), *(raw(offset, line) for offset, line in enumerate(real_traces))
    )

    shadow, rescored = harness.services.shadow.report, rescore_all(scored_records(harness), SHADOW)
    assert rescored.traces == len(real_traces)
    assert {flip.after.decision for flip in rescored.flips} == {"contribute", "rejected"}
    assert len(rescored.flips) > LAST_RECORDS
    assert list(shadow.flips) == rescored.flips[-LAST_RECORDS:]
    without_flips = [msgspec.structs.replace(report.figures, flips=[]) for report in (shadow, rescored)]
    assert without_flips[0] == without_flips[1]
    assert compared(harness) == {
        routes: sum(counts[routes] for counts in rescored.routes.values()) for routes in DECISION_PAIRS
    }


async def test_the_agent_s_confidence_is_kept_for_the_page(make_harness, raw, document):
    harness = make_harness()
    value = json.dumps(document(outcome={"result_summary": "", "confidence": 0.75})).encode()

    await harness.processed(await harness.lane(), raw(0, value))

    assert [
        trace.record.confidence
        for traces in harness.services.metrics.recent.traces.values()
        for trace in traces
    ] == [0.75]


@pytest.mark.parametrize("shadow", [None, Policy(threshold=0, withhold_endings=["cut_off"])])
async def test_how_a_run_ended_and_whether_somebody_judged_it_is_kept_for_the_page_and_the_shadow_policy(
    make_harness, raw, document, shadow
):
    harness = make_harness(embedding=False)
    shadow_of(harness, shadow)
    told = [("cut_off", "structural_failure"), ("answered", "label"), ("gave_up", 3)]
    values = [
        json.dumps(document(metadata=document()["metadata"] | {"ending": ending, "outcome_source": source}))
        for ending, source in told
    ]

    await harness.processed(await harness.lane(), *(raw(n, v.encode()) for n, v in enumerate(values)))

    kept = harness.services.metrics.recent.traces["rejected"]
    assert [(trace.record.ending, trace.record.judged) for trace in kept] == [
        *(("cut_off", False), ("answered", True), (None, None))
    ]
    if shadow is not None:
        assert compared(harness)["rejected", "rejected"] == 1


async def test_a_shadow_policy_changes_no_output(make_harness, raw, real_traces):
    published = []
    for shadow in (None, SHADOW):
        harness = make_harness(policy=ACTIVE, embedding=False)
        shadow_of(harness, shadow)
        await harness.processed(await harness.lane(), *(raw(n, line) for n, line in enumerate(real_traces)))
        published.append((harness.outputs(), harness.publisher.records(harness.ledger)))

    assert published[0] == published[1]


async def test_a_trace_that_becomes_a_dead_letter_is_no_decision(make_harness, raw):
    harness = make_harness(policy=Policy(threshold=0))
    shadow_of(harness, SHADOW)
    harness.publisher.refused.add("contribute")

    await harness.processed(await harness.lane(), raw(0, b"no JSON"), raw(1))

    recent = harness.services.metrics.recent
    assert sum(compared(harness).values()) == 0
    assert list(recent.origins) == list(recent.scores) == []
    assert [(letter.reason, letter.score is None) for letter in recent.dead_letters] == [
        ("not_json", True),
        ("too_large", False),
    ]


async def test_a_lane_reports_the_origin_of_a_trace(make_harness, raw, document):
    harness = make_harness()
    metadata = document()["metadata"]
    values = [
        json.dumps(document(metadata=metadata | changes)).encode()
        for changes in ({"agent_id": "planner", "framework": "langgraph"}, {})
    ]

    await harness.processed(await harness.lane(), raw(0, values[0]), raw(1, values[1]))

    assert list(harness.services.metrics.recent.origins) == [
        ("planner", "langgraph", "rejected"),
        (None, None, "rejected"),
    ]


async def test_a_lane_counts_the_letters_that_are_embedded_by_domain_and_script(make_harness, raw, document):
    harness = make_harness()
    changes = {"task": {"objective": "Почини build"}, "steps": [{"step_id": 0, "type": "thought"}]}

    await harness.processed(await harness.lane(), raw(0, json.dumps(document(**changes)).encode()))

    scripts = ("latin", "other")
    assert [harness.metric("kp_embedded_letters_total", domain="code", script=of) for of in scripts] == [5, 6]
    assert harness.services.metrics.recent.letters == {"code": deque([(5, 6)])}


async def test_a_large_transaction_shows_its_latest_traces_and_all_its_dead_letters(make_harness, raw):
    """Details are made only for the traces that the status page shows; dead letters are counted by reason."""
    harness = make_harness()
    values = [b"no JSON" if offset % 3 == 0 else b"a trace" for offset in range(4 * LAST_RECORDS)]

    records = [raw(offset, value) for offset, value in enumerate(values)]
    await harness.processed(await harness.lane(), *records)

    recent = harness.services.metrics.recent
    scored = [record.source for record, value in zip(records, values, strict=True) if value == b"a trace"]
    assert [trace.record.source for trace in recent.traces["rejected"]] == scored[-LAST_RECORDS:]
    assert recent.letters_by_reason() == {"not_json": len(values) - len(scored)}


@pytest.mark.parametrize("record", ["scored", "dead letter"])
async def test_a_failing_report_is_logged_without_content_and_stops_nothing(
    make_harness, raw, monkeypatch, caplog, record
):
    harness = make_harness()

    def fail(*_, **__):
        raise ValueError("content")

    monkeypatch.setattr(harness.services.metrics.recent, "detailed", fail)
    monkeypatch.setattr(harness.services.metrics.recent, "dead_lettered", fail)
    taken = raw(0, b"no JSON") if record == "dead letter" else raw(0)
    await harness.processed(await harness.lane(0, harness.changelog()), taken)
    assert harness.failures == []
    assert caplog.messages == ["raw-traces/0/0: details not reported: ValueError"]


LEARNED = Policy.model_validate(
    {
        "threshold": 0.3,
        "domains": {
            "customer_service": {
                "learned": {
                    "share": 0.7,
                    "facts_version": 1,
                    "intercept": -0.3,
                    "terms": {
                        "repeated_share": {"mean": 0.02, "deviation": 0.05, "weight": -0.4, "clip": 3},
                        "steps": {"mean": 3.3, "deviation": 0.4, "weight": -0.2, "clip": 3},
                        "novelty": {"mean": 0.4, "deviation": 0.1, "weight": 0.1, "clip": 3},
                    },
                }
            }
        },
    }
)


_WORDS = {
    "unit": 0.001,
    "mean": 0.01,
    "weights": b64encode(bytes(range(256)) * (BUCKETS // 256)).decode(),
}
_VALUE = LEARNED.domains["customer_service"].learned.model_dump() | {"words": _WORDS}
# Not a copy of the other one, which would keep the profiles that it has computed.
WORDS = Policy.model_validate({"threshold": 0.3, "domains": {"customer_service": {"learned": _VALUE}}})


@pytest.mark.parametrize(
    ("active", "shadow", "embedding"),
    [
        (LEARNED, ACTIVE, True),
        (ACTIVE, LEARNED, True),
        (LEARNED, LEARNED, True),
        (WORDS, ACTIVE, True),
        (ACTIVE, WORDS, True),
        (LEARNED, WORDS, True),
        (WORDS, ACTIVE, False),
    ],
)
async def test_a_learned_value_is_the_same_in_the_stream_the_shadow_a_file_and_an_output(
    make_harness, raw, real_traces, active, shadow, embedding
):
    """To the last bit, whichever of the two policies has it."""
    harness = make_harness(policy=active, embedding=embedding)
    shadow_of(harness, shadow)

    await harness.processed(
        await harness.lane(), *(raw(offset, line) for offset, line in enumerate(real_traces))
    )

    records, policies = scored_records(harness), (active, shadow)
    assert all(record.under(active) == record.score for record in records)
    learning = active if active.reading else shadow
    assert any(record.under(learning).learned is not None for record in records)
    assert any(
        record.under(learning).learned is None for record in records
    )  # those of the domain without one
    rescored = rescore_all(records, shadow)
    assert list(harness.services.shadow.report.flips) == rescored.flips[-LAST_RECORDS:]
    assert policies[0].digest == records[0].policy
    learned = harness.metric("kp_dimension_score_count", domain="customer_service", dimension="learned")
    scored = sum(record.score.learned is not None for record in records)
    assert (learned or 0) == scored
