"""Parsing scored traces from records and lines."""

from types import SimpleNamespace

import msgspec
import pytest

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer, score_trace
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.scored_records import read_line, read_scored_record
from knowledgepulse_worker.tools.score.offline import make_scorer, score_line
from support.scored import published


def changed(record, **values):
    return SimpleNamespace(**{**vars_of(record), **values})


def vars_of(record):
    return {name: getattr(record, name) for name in ("value", "headers", "timestamp")}


def test_parses_a_published_record(published_traces, real_traces):
    scorer = Scorer()
    for record, line in zip(published_traces, real_traces, strict=True):
        trace = ReasoningTrace.model_validate_json(line)
        read = read_scored_record(record)
        assert read.score == scorer.evaluate(trace)
        assert (read.id, read.task_domain) == (trace.id, trace.metadata.task_domain)
        assert (read.success, read.confidence) == (trace.metadata.success, trace.outcome.confidence)
        assert (read.source, read.policy) == (f"raw-traces/0/{record.offset}", Policy().digest)
        assert read.under(Policy()) == read.score


def test_parses_a_line_of_the_score_command(real_traces):
    scorer = make_scorer(Settings(), None)
    for line in real_traces:
        scored = score_line(line, scorer, 10**7)
        assert read_line("file:1", scored.to_json("none").encode()).score == scored.score


def test_ignores_producer_headers_named_like_the_workers(published_traces):
    """They stay in front; the worker's headers are the last."""
    record = published_traces[0]
    forged = (("kp-source", b"raw-traces/9/9"), ("kp-score", b"{}"), ("kp-policy", b"forged"))

    read = read_scored_record(changed(record, headers=(*forged, *record.headers)))

    assert read == read_scored_record(record)


def test_parses_a_record_with_a_lone_surrogate(published_traces):
    record = published_traces[0]
    value = record.value.replace(b'"objective":', b'"note":"\\ud800","objective":', 1)
    assert value != record.value

    assert read_scored_record(changed(record, value=value)) == read_scored_record(record)


def without(record, name):
    return changed(record, headers=tuple(header for header in record.headers if header[0] != name))


def with_score(record, **parts):
    headers = dict(record.headers)
    score = msgspec.json.decode(headers["kp-score"]) | parts
    return changed(record, headers=tuple((headers | {"kp-score": msgspec.json.encode(score)}).items()))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: changed(record, headers=()),
        lambda record: without(record, "kp-score"),
        lambda record: without(record, "kp-policy"),
        lambda record: changed(record, value=None),
        lambda record: changed(record, value=record.value[:-20]),
        lambda record: changed(record, value=b"[]"),
        lambda record: with_score(record, score=2),
        lambda record: with_score(record, novelty=-0.1),
        lambda record: with_score(record, overrides=["bribed"]),
        lambda record: with_score(record, withheld="bribed"),
        lambda record: changed(record, headers=(*record.headers[:-1], ("kp-policy", None))),
        lambda record: changed(record, headers=(*record.headers[:-1], ("kp-policy", b"\xff"))),
        lambda record: changed(record, headers=(*record.headers, ("after", b"ours"))),
    ],
)
def test_a_record_not_written_by_a_worker_is_none(published_traces, spoil):
    assert read_scored_record(spoil(published_traces[0])) is None


def test_a_withheld_record_is_read_back(real_traces):
    trace = ReasoningTrace.model_validate_json(real_traces[0])
    guarded = Policy(threshold=0, contribute_visibility=["private"])
    score = score_trace(trace, None, guarded)

    read = read_scored_record(published(0, real_traces[0], score, guarded))

    assert (read.score, read.visibility) == (score, trace.metadata.visibility)
    assert (read.score.withheld, read.under(guarded)) == ("visibility", score)
