"""Agent runs assembled from spans in Kafka; tests/chaos shows that crashes neither lose nor repeat one."""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import b64encode
from contextlib import suppress
from hashlib import md5
from itertools import chain, zip_longest

import pytest
from google.protobuf.json_format import Parse, ParseError
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from chaos.assembly import GROUP, LIMIT, Fleet, new_stream, write
from knowledgepulse_convert import ConversionError, Options
from knowledgepulse_convert.spans.exports import has_calls
from knowledgepulse_worker.tools.assemble.collector_exports import join, read, split
from knowledgepulse_worker.tools.assemble.run_conversion import CompleteRun, convert_run
from support.conversions import FOLDER, read_cases

pytestmark = pytest.mark.integration


@pytest.fixture
async def stream(broker, tmp_path):
    stream = await new_stream(broker.bootstrap_servers, tmp_path)
    stream.settings = stream.configured(kafka={"session_timeout": 6.0}, assemble={"grace": 1.0})
    return stream


async def published(stream, count):
    """Wait until so many traces are in the raw topic; returns them by id."""
    records = await stream.arrived(count, stream.settings.topics.raw)
    found = {record.key.decode(): record.value for record in records}
    assert len(found) == len(records), "a trace is published twice"
    return found


async def test_a_quiet_partition_ends_by_the_clock_and_a_successor_publishes_nothing_again(
    stream, real_traces
):
    fleet = Fleet(real_traces[:GROUP])
    (records,) = fleet.groups
    await write(stream, records)
    async with stream.worker(command="assemble") as assembler:
        assert await published(stream, GROUP) == fleet.expected
        assert (await assembler.get("/readyz"))[0] == 200
        assert await assembler.stop() == 0, assembler.log()

    await write(stream, records)
    async with stream.worker(command="assemble"):
        await stream.arrived(fleet.spans, stream.settings.assemble.late)
    assert await published(stream, GROUP) == fleet.expected


def recorded_runs():
    """Return the exports of the recorded documents' runs, by trace ids of their own.

    Each has a single span or log record, children first. Those of every second run are protobuf, if they can.
    """
    runs = {}
    for number, case in enumerate(chain(read_cases(FOLDER / "otlp.jsonl"), recorded_by_producers())):
        documents = case["document"] if isinstance(case["document"], list) else [case["document"]]
        for document in documents:
            with suppress(ConversionError):
                for one in split(json.dumps(document).encode()):
                    name = md5(f"{number} {one.trace_id}".encode(), usedforsecurity=False).hexdigest()
                    value = re.sub(rb'("traceId":\s*")[^"]*', rb"\g<1>" + name.encode(), one.value)
                    runs.setdefault(name, []).insert(0, value)
    for name in list(runs)[::2]:
        with suppress(ParseError):
            runs[name] = list(map(as_protobuf, runs[name]))
    return runs


def recorded_by_producers():
    """Return the cases of today's programs that export OTLP."""
    cases = chain.from_iterable(map(read_cases, sorted((FOLDER / "producers").glob("*.jsonl"))))
    return [case for case in cases if '"resource' in json.dumps(case["document"])[:20]]


def batched(values, size):
    return (values[start : start + size] for start in range(0, len(values), size))


def as_protobuf(value):
    """Encode an export in JSON as protobuf, whose JSON has ids in base64."""

    def encoded(found):
        return found[1] + b64encode(bytes.fromhex(found[2].decode()))

    in_base64 = re.sub(rb'("(?:traceId|spanId|parentSpanId)":\s*")([0-9A-Fa-f]+)', encoded, value)
    return Parse(in_base64, TracesData()).SerializeToString()


async def test_every_recorded_run_that_called_a_model_or_a_tool_is_a_trace_or_a_dead_letter(stream):
    """Spans of many instrumentations are in one topic: several runs at a time, in both encodings."""
    stream.settings = stream.configured(assemble={"grace": 1.0, "idle": 5.0})
    runs, expected, letters = recorded_runs(), {}, set()
    for name, values in runs.items():
        has_root = any(split(value)[0].is_root for value in values)
        converted = convert_run(CompleteRun(name, has_root, join(values)), Options())
        expected |= {json.loads(trace)["id"]: trace for trace in converted.traces}
        letters |= {name.encode()} if converted.errors else set()
        assert converted.traces or converted.errors or not any(map(has_calls, read(join(values)[0])))
    batches = [
        [(name.encode(), export) for batch in batched(values, 3) for export in join(batch)]
        for name, values in runs.items()
    ]
    at = round(time.time() * 1000)
    await write(stream, [(at, *record) for turn in zip_longest(*batches) for record in turn if record])

    async with stream.worker(command="assemble"):
        assert await published(stream, len(expected)) == expected
        async with asyncio.timeout(LIMIT):
            while letters - {record.key for record in await stream.read(stream.settings.topics.dead_letter)}:
                await asyncio.sleep(0.2)
