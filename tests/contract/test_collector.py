"""What a real OpenTelemetry Collector wrote to Kafka is assembled; `make check NAME=collector` records it."""

from __future__ import annotations

import json

import pytest

from knowledgepulse_convert import Options, convert
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.collector_exports import read, split
from knowledgepulse_worker.tools.assemble.open_runs import OpenRuns
from knowledgepulse_worker.tools.assemble.run_conversion import CompleteRun, convert_run
from knowledgepulse_worker.tools.assemble.run_outputs import RunOutputs
from support.collector import ENCODINGS, recorded, sent

SETTINGS = Settings()
TOPICS = (
    SETTINGS.topics.raw,
    SETTINGS.topics.dead_letter,
    SETTINGS.assemble.spans,
    SETTINGS.assemble.late,
)
END = 10**9


@pytest.fixture(params=ENCODINGS)
def records(request):
    return recorded(request.param)


def test_each_record_is_a_run_with_its_trace_id_as_key(records):
    for key, value in records:
        spans = split(value)
        assert {span.trace_id.encode() for span in spans} == {key}
        assert [span.is_root for span in spans] == [False, False, False, True]


def test_the_runs_are_those_of_direct_conversion(records):
    runs = OpenRuns(SETTINGS.assemble, 0, 0, {})
    for offset, (_, value) in enumerate(records):
        runs.arrive(offset, offset)
        assert runs.add(split(value)) == ([], 0)
    runs.wait(END)
    outputs = RunOutputs(SETTINGS, {name: Topic(name, 1, 2**20) for name in TOPICS})

    assembled = []
    for run in runs.completed():
        assert run.completed_by == "root"
        converted = convert_run(CompleteRun.of(run), Options())
        assembled += [trace.value for trace in outputs.of_run(run, converted, 0)]

    direct = [conversion.trace.to_json() for conversion in convert(read(sent()), "otlp")]
    assert sorted(assembled) == sorted(direct)
    assert len(direct) == 2


def test_a_failure_that_the_collector_passed_on_is_a_recovery(records):
    """Its status is a number in one encoding and a name in the other."""
    exports = [document for _, value in records for document in read(value)]

    for conversion in convert(exports, "otlp"):
        steps = json.loads(conversion.trace.to_json())["steps"]
        assert "error_recovery" in {step["type"] for step in steps}
