"""Scored traces from files."""

import json
import re
from codecs import BOM_UTF8

import pytest

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.scored_records import score_json
from knowledgepulse_worker.tools.policies import scored_files
from knowledgepulse_worker.tools.policies.scored_files import read_files
from knowledgepulse_worker.tools.score.offline import make_scorer, score_line


@pytest.fixture
def scored_lines(real_traces):
    scorer = make_scorer(Settings(), None)
    return [
        score_json(score_line(line, scorer, Settings(), embedder="none")).encode() for line in real_traces[:5]
    ]


SETTINGS = Settings(embedding={"backend": "none"})


def read(*paths):
    return list(read_files(paths, SETTINGS))


def test_scores_raw_traces_and_reads_scored_ones(tmp_path, real_traces, scored_lines, monkeypatch):
    raw, scored = tmp_path / "raw.jsonl", tmp_path / "scored.jsonl"
    raw.write_bytes(b"\n".join(real_traces[:5]))
    scored.write_bytes(BOM_UTF8 + b"\n\n".join(scored_lines) + b"\n")

    records = read(raw, scored)

    assert [record.score for record in records[:5]] == [record.score for record in records[5:]]
    assert {record.embedder for record in records} == {"none"}
    assert (records[1].source, records[6].source) == (f"{raw}:2", f"{scored}:3")
    monkeypatch.setattr(scored_files, "load_embedder", lambda *_: pytest.fail("nothing is to be scored"))
    assert len(read(scored)) == 5


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("value", ['"\\ud83d"', "1e999", "9" * 5000])
@pytest.mark.parametrize("path", ["metadata", "input", "content"])
def test_what_a_worker_scores_is_read_whatever_it_holds(tmp_path, real_traces, value, first, path):
    trace = json.loads(real_traces[0])
    if path == "metadata":
        trace["metadata"]["build"] = "XX"
    elif path == "input":
        trace["steps"][0]["input"] = {"n": "XX"}
    elif value.startswith('"'):
        trace["steps"][0]["content"] = "XX"
    else:
        trace["more"] = "XX"
    lines = [json.dumps(trace).replace('"XX"', value).encode(), real_traces[1]]
    file = tmp_path / "traces.jsonl"
    file.write_bytes(b"\n".join(lines if first else lines[::-1]))

    assert len(read(file)) == 2


def test_a_raw_trace_above_the_limit_is_reported_and_the_others_are_scored(tmp_path, real_traces, capsys):
    large = json.loads(real_traces[1])
    large["steps"][0]["content"] = "x" * Settings().limits.trace_bytes
    file = tmp_path / "raw.jsonl"
    file.write_bytes(b"\n".join([real_traces[0], json.dumps(large).encode(), real_traces[2]]))

    records = read(file)

    assert [record.source for record in records] == [f"{file}:1", f"{file}:3"]
    assert f"{file}:2: too_large: " in capsys.readouterr().err.replace("\n", "")


NO_FORMAT = ":1: neither output of `kp-worker score` nor a trace"
HALF = ":2: not output of `kp-worker score`: "
BAD = {
    **{repr(text): (text, ": is empty") for text in (b"", b"\n \n")},
    **{repr(text): (text, NO_FORMAT) for text in (b"{}", b"[]", b"3", b"text", b"\xff", b'{"quality')},
    **{
        f"scored, cut at {at}": (lambda _, scored, at=at: scored[0] + b"\n" + scored[1][:at], HALF)
        for at in (1, 40, -3)
    },
    "raw, cut": (lambda raw, _: raw[0] + b"\n" + raw[1][:100], ":2: not a trace: "),
    "out of range": (
        lambda _, scored: scored[0].replace(b'"complexity": 1', b'"complexity": 2'),
        ":1: not output of `kp-worker score`: Expected `float` <= 1.0 - at `$.complexity`",
    ),
    "buckets instead of words": (
        lambda _, scored: scored[0].replace(b'"words": "', b'"buckets": "AQA=", "words": "'),
        ":1: not output of `kp-worker score`: Expected `bytes` of length <= 0 - at `$.counts.buckets`",
    ),
    **{
        f"{digits:.5} steps": (
            lambda _, scored, digits=digits: re.sub(
                rb'"steps": ?\d+', b'"steps":' + digits.encode(), scored[0]
            ),
            ":1: not output of `kp-worker score`: Expected `int` ",
        )
        for digits in ("-1", "9" * 400)
    },
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_the_error_for_a_bad_file_names_the_line(tmp_path, real_traces, scored_lines, content, message):
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content(real_traces, scored_lines) if callable(content) else content)
    with pytest.raises(InputError, match=re.escape(f"{file}{message}")):
        read(file)


def test_rejects_a_directory(tmp_path):
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read(tmp_path)
