"""Parsing scored traces from records and lines."""

from types import SimpleNamespace

import msgspec
import pytest

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.scored_records import read_line, read_scored_record, score_json
from knowledgepulse_worker.tools.score.offline import make_scorer, score_line


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


@pytest.mark.parametrize("told", ["default", "label", None, 3, ["default"]])
def test_a_confidence_that_a_converter_assumed_is_known_from_a_record_and_from_a_line(
    published_traces, real_traces, told
):
    trace = msgspec.json.decode(real_traces[0])
    trace["metadata"]["confidence_source"] = told
    value = msgspec.json.encode(trace)

    published = read_scored_record(changed(published_traces[0], value=value))
    scored = score_line(value, make_scorer(Settings(), None), Settings(), embedder="none")
    line = read_line("scored.jsonl:1", score_json(scored).encode())

    assumed = told == "default"
    assert [each.assumed_confidence for each in (published, scored, line)] == [assumed] * 3


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
