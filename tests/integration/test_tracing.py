"""A real worker's spans, received by a collector."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.served import served
from support.streams import Message, headers_of

pytestmark = pytest.mark.integration

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@asynccontextmanager
async def collecting():
    """Run a collector; yield its address, the received spans and the names of their services."""
    spans, services = [], set()

    async def receive(request):
        body = ExportTraceServiceRequest.FromString(await request.read())
        for resource_span in body.resource_spans:
            services.update(
                a.value.string_value for a in resource_span.resource.attributes if a.key == "service.name"
            )
        spans.extend(
            span
            for of_resource in body.resource_spans
            for scope in of_resource.scope_spans
            for span in scope.spans
        )
        return web.Response()

    application = web.Application()
    application.router.add_post("/v1/traces", receive)
    async with served(application) as url:
        yield url, spans, services


async def test_exports_spans_of_traced_records_and_keeps_their_context(make_stream, real_traces):
    stream = await make_stream(1)
    raw = await stream.publish(
        [
            Message(real_traces[0], headers=[("traceparent", PARENT.encode()), ("a", None)]),
            Message(real_traces[1]),
            Message(b"no trace"),
        ]
    )
    async with collecting() as (url, spans, services):
        environment = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        async with stream.worker(environment=environment) as worker:
            outputs = await stream.outputs(worker, raw)
            await worker.published(3)
            assert await worker.stop() == 0

    topics = stream.settings.topics
    processed = {
        next(
            attribute.value.int_value
            for attribute in span.attributes
            if attribute.key == "messaging.kafka.offset"
        ): span
        for span in spans
        if span.name == f"process {topics.raw}"
    }
    children = {
        offset: sorted(child.name for child in spans if child.parent_span_id == span.span_id)
        for offset, span in processed.items()
    }
    assert children == {
        0: ["embed", f"publish {topics.rejected}"],
        1: ["embed", f"publish {topics.rejected}"],
        2: [f"publish {topics.dead_letter}"],
    }
    assert (len(spans), services) == (8, {"knowledgepulse-worker"})
    assert (processed[0].trace_id.hex(), processed[0].parent_span_id.hex()) == (TRACE, SPAN)
    assert len({span.trace_id for span in processed.values()}) == 3
    carried = [headers_of(record).get("traceparent") for record in outputs if record.topic == topics.rejected]
    assert carried == [PARENT, None]
