"""The exchange with a real OpenTelemetry Collector, configured by deploy/otel-collector.

`make check NAME=collector` builds the Collector and runs this; `make test` does not, since that takes Go.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

from knowledgepulse_convert import convert
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.tools.assemble.collector_exports import read, split
from knowledgepulse_worker.tools.demo.processes import free_ports
from support.collector import ENCODINGS, RECORDED, record, recorded, sent
from support.otlp import logs_in, logs_of, spans_in
from support.spans import export, message, span, spans_of

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
OTELCOL = ROOT / ".venv" / "otelcol" / "otelcol"
CONFIG = ROOT / "deploy" / "otel-collector" / "collector.yaml"
READY = "Everything is ready"
LIMIT = 60
GRACE = 20.0
"""Seconds in which all spans of a test arrive."""
REQUEST = 50
"""Spans of a request."""


@pytest.fixture
def make_stream_of_spans(make_stream):
    """Make a stream with topics for spans and evaluations."""

    async def make(partitions):
        name = f"collector-{uuid4().hex[:8]}"
        stream = await make_stream(
            partitions,
            assemble={"spans": f"{name}-spans", "late": f"{name}-late", "grace": GRACE},
            topics={"evaluations": f"{name}-logs", "evaluation_spans": f"{name}-scores"},
        )
        async with TopicAdmin(stream.settings.kafka, stream.settings.topics) as admin:
            await admin.create(stream.settings.assemble.spans, partitions, 1, {})
        return stream

    return make


class Backend:
    """A backend that receives spans and logs over OTLP."""

    def __init__(self):
        self.spans, self.logs = [], []

    @asynccontextmanager
    async def serving(self):
        """Serve until the end; yields the URL."""
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/traces", self._take_traces)
        app.router.add_post("/v1/logs", self._take_logs)
        async with TestServer(app) as server:
            yield str(server.make_url("")).rstrip("/")

    async def _take_traces(self, request):
        self.spans += split(await request.read())
        return web.Response()

    async def _take_logs(self, request):
        self.logs += logs_in(LogsData.FromString(await request.read()))
        return web.Response()


class Collector:
    """A running Collector."""

    def __init__(self, backend, url):
        self.backend = backend
        self._url = url

    async def send(self, body):
        """Send a request as an instrumented program does."""
        headers = {"Content-Type": "application/x-protobuf"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{self._url}/v1/traces", data=io.BytesIO(body)) as answer,
        ):
            assert answer.status == 200, await answer.text()


@asynccontextmanager
async def collector(stream, **changes):
    """Run a Collector that exchanges with a stream.

    Args:
        stream: the stream.
        changes: changes of the Kafka exporter's configuration, with ``__`` between the levels.
    """
    grpc, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    values = {
        "receivers::otlp::protocols::grpc::endpoint": grpc,
        "receivers::otlp::protocols::http::endpoint": http,
        "receivers::kafka/scores::logs::topics": [stream.settings.topics.evaluations],
        "receivers::kafka/scores::traces::topics": [stream.settings.topics.evaluation_spans],
        "exporters::kafka/spans::traces::topic": stream.settings.assemble.spans,
        "service::telemetry::metrics::level": "none",
    } | {f"exporters::kafka/spans::{name.replace('__', '::')}": value for name, value in changes.items()}
    backend, log = Backend(), stream.folder / "collector.log"
    async with backend.serving() as url:
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(OTELCOL, f"--config={CONFIG}"),
                *(f"--config=yaml:{name}: {json.dumps(value)}" for name, value in values.items()),
                stdout=output,
                stderr=output,
                env=os.environ
                | {"KAFKA_BROKER": stream.settings.kafka.bootstrap_servers, "OTLP_BACKEND": url},
            )
        try:
            async with asyncio.timeout(LIMIT):
                while READY not in log.read_text():
                    assert process.returncode is None, log.read_text()
                    await asyncio.sleep(0.1)
            yield Collector(backend, f"http://{http}")
            process.terminate()
            assert await process.wait() == 0, log.read_text()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def arrived(stream, count):
    """Wait until so many spans are on the topic; return its records."""
    async with asyncio.timeout(LIMIT):
        while True:
            records = await stream.read(stream.settings.assemble.spans)
            if sum(len(split(record.value)) for record in records) >= count:
                return records
            await asyncio.sleep(0.2)


async def assembled(stream, count):
    """Assemble so many traces; return them by id."""
    topics = stream.settings.topics
    async with stream.worker(command="assemble") as assembler, asyncio.timeout(LIMIT):
        while len(raw := await stream.read(topics.raw)) < count:
            await asyncio.sleep(0.2)
        assert await assembler.stop() == 0, assembler.log()
    assert await stream.read(topics.dead_letter, stream.settings.assemble.late) == []
    found = {record.key.decode(): record.value for record in raw}
    assert len(found) == len(raw), "a trace is published twice"
    return found


def directly(values):
    """Return the traces of some exports, converted directly, by id."""
    documents = [document for value in values for document in read(value)]
    return {conversion.trace.id: conversion.trace.to_json() for conversion in convert(documents, "otlp")}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("by_id", "partitions"), [(True, 4), (False, 1)])
async def test_spans_become_the_traces_of_direct_conversion(
    make_stream_of_spans, real_traces, encoding, by_id, partitions
):
    """Also without ``partition_traces_by_id``, if the topic has one partition."""
    stream = await make_stream_of_spans(partitions)
    spans = [span for trace in real_traces for span in spans_of(trace)]
    expected = directly([export(spans)])
    random.Random(1).shuffle(spans)
    async with collector(stream, traces__encoding=encoding, partition_traces_by_id=by_id) as running:
        for start in range(0, len(spans), REQUEST):
            await running.send(export(spans[start : start + REQUEST]))
        records = await arrived(stream, len(spans))

    assert {record.value[:1] == b"{" for record in records} == {encoding == "otlp_json"}
    keys = {span.trace_id.hex().encode() for span in spans} if by_id else {None}
    assert {record.key for record in records} == keys
    assert await assembled(stream, len(expected)) == expected
    assert len(expected) == len(real_traces)


async def test_a_run_larger_than_a_record_is_assembled(make_stream_of_spans):
    """As where each call of the model repeats the conversation so far."""
    stream = await make_stream_of_spans(2)
    asked = message("user", {"type": "text", "content": "x" * 400_000})
    said = message("assistant", {"type": "text", "content": "y"})
    values = {
        gen_ai.GEN_AI_INPUT_MESSAGES: json.dumps([asked]),
        gen_ai.GEN_AI_OUTPUT_MESSAGES: json.dumps([said]),
    }
    trace_id = b"\x17" * 16
    spans = [span(trace_id, number, "chat", values) for number in range(1, 6)]
    spans.append(span(trace_id, 0, "invoke_agent", {gen_ai.GEN_AI_AGENT_NAME: "tester"}, None, 7))
    async with collector(stream) as running:
        await running.send(export(spans))
        records = await arrived(stream, len(spans))

    assert len(records) > 1
    assert await assembled(stream, 1) == directly([export(spans)])


async def test_scores_reach_the_backend_as_they_were_written(make_stream_of_spans, real_traces):
    stream = await make_stream_of_spans(2)
    runs = [spans_of(trace) for trace in real_traces[:20]]
    async with (
        collector(stream) as running,
        stream.worker(command="assemble"),
        stream.worker(),
        stream.worker(command="evaluations"),
        asyncio.timeout(2 * LIMIT),
    ):
        for spans in runs:
            await running.send(export(spans))
        await arrived(stream, sum(map(len, runs)))
        while len(running.backend.logs) < len(runs) or len(scores_in(running.backend)) < len(runs):
            await asyncio.sleep(0.2)
    written = [
        log
        for record in await stream.read(stream.settings.topics.evaluations)
        for log in logs_of(record.value)
    ]

    assert serialized(running.backend.logs) == serialized(written)
    assert {(log.trace_id, log.span_id) for _, _, log in written} == {
        (spans[-1].trace_id, spans[-1].span_id) for spans in runs
    }
    assert {span.span_id for span in running.backend.spans} >= {log.span_id.hex() for _, _, log in written}
    assert {(score.trace_id, score.parent_span_id) for score in scores_in(running.backend)} == {
        (log.trace_id, log.span_id) for _, _, log in written
    }
    records = await stream.read(stream.settings.assemble.spans)
    assert sum(len(split(record.value)) for record in records) == sum(
        map(len, runs)
    )  # no score is a run's span


def scores_in(backend):
    """Return the spans of scores that a backend has."""
    spans = [spans_in(TracesData.FromString(span.value))[0][2] for span in backend.spans]
    return [span for span in spans if span.name == "evaluate"]


def serialized(logs):
    """Return logs in one form and order; the Collector writes an empty body where there is none."""
    for _, _, log in logs:
        if log.body.WhichOneof("value") is None:
            log.ClearField("body")
    return sorted(tuple(part.SerializeToString(deterministic=True) for part in log) for log in logs)


async def test_the_recorded_records_are_what_the_collector_writes(make_stream_of_spans, tmp_path):
    """If they are not, look at what changed, and replace the recorded ones."""
    written = {}
    for encoding in ENCODINGS:
        stream = await make_stream_of_spans(1)
        async with collector(stream, traces__encoding=encoding) as running:
            await running.send(sent())
            records = await arrived(stream, len(split(sent())))
        written[encoding] = [(record.key, record.value) for record in records]
    new = tmp_path / RECORDED.name
    record(new, written)
    assert written == {encoding: recorded(encoding) for encoding in ENCODINGS}, f"see {new}"
