"""Records in, transactions out: what is published equals direct conversion; tests/simulation has crashes."""

from __future__ import annotations

import json
import random

from prometheus_client import CollectorRegistry

import knowledgepulse_worker.tools.assemble.run_conversion
import knowledgepulse_worker.tools.assemble.run_outputs
from knowledgepulse_convert import convert
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_schemas import DeadLetterHeaders
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.assembly_metrics import AssemblyMetrics
from knowledgepulse_worker.tools.assemble.collector_exports import read, split
from knowledgepulse_worker.tools.assemble.open_runs import OpenRuns
from knowledgepulse_worker.tools.assemble.partition_assembler import PartitionAssembler
from knowledgepulse_worker.tools.assemble.run_outputs import RunOutputs
from support.spans import converted, export, message, span, spans_of

SETTINGS = Settings(assemble={"grace": 10, "idle": 60})
TOPICS = SETTINGS.topics
LATE = SETTINGS.assemble.late
LIMIT = 2**20
END = 10**6
TRACE_ID = b"\1" * 16


def topics(**limits):
    return {
        name: Topic(name, 4, limits.get(name.replace("-", "_"), LIMIT))
        for name in (TOPICS.raw, TOPICS.dead_letter, LATE, SETTINGS.assemble.spans)
    }


class Partition:
    """A partition of the spans topic, and the transactions of the assembler that reads it."""

    def __init__(self, values, limits=None, settings=SETTINGS):
        self.records = [
            RawRecord(settings.assemble.spans, 3, offset, offset * 1000, None, value, ())
            for offset, value in enumerate(values)
        ]
        self.steps = []
        self.registry = CollectorRegistry()
        self.metrics = AssemblyMetrics(self.registry)
        self._settings = settings
        self._outputs = RunOutputs(settings, topics(**(limits or {})))

    async def publish(self, step):
        self.steps.append(step)

    async def run(self):
        """Read to the end, and then wait until every run is complete."""
        runs = OpenRuns(self._settings.assemble)
        assembler = PartitionAssembler(3, runs, converted, self._outputs, self.publish, self.metrics)
        await assembler.process(self.records)
        await assembler.wait(END)

    def published(self, topic):
        return [output for step in self.steps for output in step.outputs if output.topic == topic]

    def counted(self, name, **labels):
        return self.registry.get_sample_value(name, labels)


def directly(values):
    """The traces of some exports, converted at once."""
    documents = [document for value in values for document in read(value)]
    return {conversion.trace.id: conversion.trace.to_json() for conversion in convert(documents, "otlp")}


def by_id(records):
    found = {record.key.decode(): record.value for record in records}
    assert len(found) == len(records), "a trace is published twice"
    return found


def shuffled(traces, seed):
    """The spans of traces as records in any order, some of them twice."""
    dice = random.Random(seed)
    spans = [span for trace in traces for span in spans_of(trace)]
    spans += dice.sample(spans, len(spans) // 10)
    dice.shuffle(spans)
    values = []
    while spans:
        count = dice.randint(1, 5)
        values.append(export(spans[:count], as_json=dice.random() < 0.5))
        del spans[:count]
    return values


async def test_shuffled_and_repeated_spans_give_the_traces_of_direct_conversion(real_traces):
    values = shuffled(real_traces[:12], seed=1)
    partition = Partition(values, settings=Settings(assemble={"grace": len(values)}))
    await partition.run()

    assert by_id(partition.published(TOPICS.raw)) == directly(values)
    assert {dict(record.headers)["kp-completed-by"] for record in partition.published(TOPICS.raw)} == {
        b"root"
    }
    assert partition.counted("kp_assembly_traces_total") == 12


async def test_what_is_no_export_is_a_dead_letter_with_its_place():
    partition = Partition([b"no export", None])
    await partition.run()

    letters = partition.published(TOPICS.dead_letter)
    headers = [DeadLetterHeaders.from_kafka(letter.headers) for letter in letters]
    assert [(header.reason, header.topic, header.partition, header.offset) for header in headers] == [
        ("undecodable", SETTINGS.assemble.spans, 3, 0),
        ("empty", SETTINGS.assemble.spans, 3, 1),
    ]
    assert [letter.value for letter in letters] == [b"no export", None]


async def test_an_unexpected_error_in_one_record_stops_no_other(real_traces, monkeypatch):
    def split_or_fail(value, max_bytes):
        if value == b"broken":
            raise ZeroDivisionError
        return split(value, max_bytes)

    monkeypatch.setattr(knowledgepulse_worker.tools.assemble.partition_assembler, "split", split_or_fail)
    values = [b"broken", export(spans_of(real_traces[0]))]
    partition = Partition(values)
    await partition.run()

    assert by_id(partition.published(TOPICS.raw)) == directly(values[1:])
    (letter,) = partition.published(TOPICS.dead_letter)
    assert DeadLetterHeaders.from_kafka(letter.headers).reason == "undecodable"
    assert letter.value == b"broken"


async def test_a_record_with_more_bytes_of_spans_than_may_be_open_is_a_dead_letter(real_traces):
    settings = Settings(assemble={"grace": 10, "idle": 60, "open_bytes": 1024})
    partition = Partition([export(spans_of(real_traces[0]))], settings=settings)
    await partition.run()

    (letter,) = partition.published(TOPICS.dead_letter)
    assert DeadLetterHeaders.from_kafka(letter.headers).reason == "too_large"


async def test_a_record_from_the_future_ends_no_run_and_does_not_stop_time(real_traces):
    """Producers set timestamps, and one wrong clock must not end every run early."""
    *early, last = spans_of(real_traces[0])
    values = [export(early), export([span(b"\2" * 16, 0, "GET /", {}, None)]), export([last]), export([])]
    times = [1000, 10**8, 1000, 1011]
    partition = Partition([])
    now = iter(times[:1] * 3 + times[3:])
    assembler = PartitionAssembler(
        3,
        OpenRuns(SETTINGS.assemble),
        converted,
        partition._outputs,
        partition.publish,
        partition.metrics,
        now.__next__,
    )
    await assembler.process(
        RawRecord(SETTINGS.assemble.spans, 3, offset, seconds * 1000, None, value, ())
        for offset, (value, seconds) in enumerate(zip(values, times, strict=True))
    )

    assert by_id(partition.published(TOPICS.raw)) == directly([values[0], values[2]])
    assert partition.published(LATE) == []


async def test_a_run_without_content_is_a_dead_letter_with_its_spans():
    values = [export([span(TRACE_ID, 0, "invoke_agent", {}, None)])]
    partition = Partition(values)
    await partition.run()

    (letter,) = partition.published(TOPICS.dead_letter)
    headers = DeadLetterHeaders.from_kafka(letter.headers)
    assert (headers.reason, headers.exception) == ("invalid_trace", "ConversionError")
    assert "no message content was recorded" in headers.message
    assert (letter.key, letter.value) == (TRACE_ID.hex().encode(), values[0])
    assert partition.counted("kp_assembly_dead_letters_total", reason="invalid_trace") == 1


async def test_a_run_that_lost_its_agent_is_no_trace_for_each_of_its_calls(real_traces):
    *calls, _agent = spans_of(real_traces[0])
    partition = Partition([export(calls)])
    await partition.run()

    assert partition.published(TOPICS.raw) == []
    (letter,) = partition.published(TOPICS.dead_letter)
    assert "neither a root span nor an agent's span" in DeadLetterHeaders.from_kafka(letter.headers).message


async def test_an_agent_below_a_root_that_never_arrives_is_published_after_idleness():
    said = message("assistant", {"type": "text", "content": "Done"})
    asked = message("user", {"type": "text", "content": "Do it"})
    spans = [
        span(TRACE_ID, 1, "invoke_agent", {}, parent=99),
        span(
            TRACE_ID,
            2,
            "chat",
            {
                "gen_ai.input.messages": json.dumps([asked]),
                "gen_ai.output.messages": json.dumps([said]),
            },
            parent=1,
        ),
    ]
    partition = Partition([export(spans)])
    await partition.run()

    (trace,) = partition.published(TOPICS.raw)
    assert dict(trace.headers)["kp-completed-by"] == b"idle"


async def test_other_services_yield_nothing():
    partition = Partition([export([span(TRACE_ID, 0, None, {"http.route": "/"}, None)])])
    await partition.run()

    assert [step.outputs for step in partition.steps] == [[]]
    assert partition.counted("kp_assembly_runs_total", completed_by="root") == 1


async def test_a_run_that_called_a_model_without_content_that_is_read_is_a_dead_letter():
    """It is told in a dialect that is not known, and must not vanish."""
    operations = {TRACE_ID: "plan", b"\2" * 16: "embeddings"}  # any service embeds texts
    values = [export([span(name, 0, operation, {}, None)]) for name, operation in operations.items()]
    partition = Partition(values)
    await partition.run()

    [letter] = partition.published(TOPICS.dead_letter)
    assert letter.key == TRACE_ID.hex().encode()
    assert "a model or a tool was called" in DeadLetterHeaders.from_kafka(letter.headers).message
    assert partition.counted("kp_assembly_dead_letters_total", reason="invalid_trace") == 1
    assert partition.published(TOPICS.raw) == []


async def test_an_unexpected_error_in_one_run_stops_no_other(real_traces, monkeypatch):
    broken, fine = map(spans_of, real_traces[:2])

    def convert_or_fail(documents, *rest):
        trace_id = documents[0]["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
        if trace_id == broken[0].trace_id.hex():
            raise ZeroDivisionError
        return convert(documents, *rest)

    monkeypatch.setattr(knowledgepulse_worker.tools.assemble.run_conversion, "convert", convert_or_fail)
    values = [export(broken, as_json=True), export(fine, as_json=True)]
    partition = Partition(values)
    await partition.run()

    assert by_id(partition.published(TOPICS.raw)) == directly(values[1:])
    (letter,) = partition.published(TOPICS.dead_letter)
    assert DeadLetterHeaders.from_kafka(letter.headers).exception == "ZeroDivisionError"


async def test_what_a_topic_does_not_accept_is_a_cut_dead_letter(real_traces):
    partition = Partition([export(spans_of(real_traces[0]))], limits={"raw_traces": 500, "dead_letter": 4000})
    await partition.run()

    (letter,) = partition.published(TOPICS.dead_letter)
    headers = DeadLetterHeaders.from_kafka(letter.headers)
    assert headers.reason == "too_large"
    assert headers.value_length > len(letter.value)


async def test_a_transaction_is_bounded(real_traces, monkeypatch):
    monkeypatch.setattr(knowledgepulse_worker.tools.assemble.transaction_log, "STEP_RECORDS", 4)
    partition = Partition([export(spans_of(trace)) for trace in real_traces[:9]])
    await partition.run()

    assert max(len(step.outputs) for step in partition.steps) <= 2
    assert len(by_id(partition.published(TOPICS.raw))) == 9
    positions = [step.position for step in partition.steps]
    assert positions == sorted(positions)
    assert partition.steps[-1].restart_offset == 9
