"""`kp-worker sample`: each file is one that the other commands read."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from knowledgepulse_worker.cli.entry import main


def output(*words, given=None):
    done = CliRunner().invoke(main, words, input=given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    ("name", "framework", "steps"),
    [("session", "claude_code", 19), ("spans", "otlp", 5), ("chat", "openai", 6)],
)
def test_a_sample_of_another_format_is_converted_whole(name, framework, steps):
    trace = json.loads(output("convert", "-", given=output("sample", name)))

    assert trace["metadata"]["framework"] == framework
    assert len(trace["steps"]) == steps


def test_the_labels_are_of_the_traces():
    traces = [json.loads(line) for line in output("sample", "traces").splitlines()]
    labels = [json.loads(line) for line in output("sample", "labels").splitlines()]

    assert len(traces) == 154
    assert {label["id"] for label in labels} <= {trace["id"] for trace in traces} | {
        trace["metadata"].get("native_id") for trace in traces
    }
