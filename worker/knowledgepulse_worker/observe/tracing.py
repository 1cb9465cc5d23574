"""OpenTelemetry tracing, which continues the producer's trace with spans for each record.

The spans follow the semantic conventions for messaging
(https://opentelemetry.io/docs/specs/semconv/messaging/). This module is imported only if tracing is enabled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker import __version__

logger = logging.getLogger(__name__)

SERVICE = "knowledgepulse-worker"
"""Default `service.name` of the resource."""

_PROPAGATOR = TraceContextTextMapPropagator()


class Tracing:
    """Creates the spans of each record once its transaction is committed.

    Spans are created afterwards, from times measured by the lane, so that none stays open. A record that a
    lane abandons gets its span from the partition's next owner.

    The parent is the producer's context from the record's headers, whose sampling decision applies. The
    output keeps these headers, so that consumers' spans are siblings of the worker's. Dead letters are not
    errors of the worker, so their span status stays unset.

    Args:
        tracer: creates the spans.
        group: the consumer group's name.
    """

    def __init__(self, tracer: Tracer, group: str) -> None:
        self._tracer = tracer
        self._group = group

    def finished(
        self,
        record: RawRecord,
        *,
        taken: float,
        embedded: tuple[float, float] | None,
        sent: float,
        output: str,
        outcome: dict[str, AttributeValue | None],
    ) -> None:
        """Create the spans of a record that has just been committed; never raises.

        All times are in seconds of ``time.monotonic``.

        Args:
            record: the raw record; of its value, only the size is recorded.
            taken: when the lane took the record.
            embedded: start and end of its batch; None if the record was not embedded.
            sent: when it was scored; from then on, it waited for the next transaction.
            output: the output topic.
            outcome: the outcome, recorded as attributes ``kp.<name>`` unless None.
        """
        try:
            now, monotonic = time.time_ns(), time.monotonic()

            def nanoseconds(moment: float) -> int:
                return now - round((monotonic - moment) * 1e9)

            span = self._tracer.start_span(
                f"process {record.topic}",
                _PROPAGATOR.extract(_carrier(record.headers)),
                SpanKind.CONSUMER,
                self._attributes(record, outcome),
                start_time=nanoseconds(taken),
            )
            if embedded is not None:
                started, ended = map(nanoseconds, embedded)
                within = self._tracer.start_span("embed", set_span_in_context(span), start_time=started)
                within.end(ended)
            self._published(span, output, nanoseconds(sent), now)
            span.end(now)
        except Exception:
            logger.exception("%s has no span", record.source)

    def _attributes(
        self, record: RawRecord, outcome: dict[str, AttributeValue | None]
    ) -> dict[str, AttributeValue]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.consumer.group.name": self._group,
            "messaging.kafka.offset": record.offset,
            **({"messaging.kafka.message.tombstone": True} if record.value is None else {}),
            "messaging.message.body.size": len(record.value or b""),
            **{f"kp.{name}": item for name, item in outcome.items() if item is not None},
        }

    def _published(self, parent: Span, topic: str, started: int, ended: int) -> None:
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "publish",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
        }
        # Not PRODUCER, since the output does not carry this span's context.
        kind = SpanKind.CLIENT
        span = self._tracer.start_span(
            f"publish {topic}", set_span_in_context(parent), kind, attributes, start_time=started
        )
        span.end(ended)


@contextmanager
def otlp_tracing(group: str) -> Iterator[Tracing]:
    """Export spans by OTLP over HTTP, configured by the standard ``OTEL_*`` variables.

    Pending spans are flushed when the context exits.

    Args:
        group: the consumer group's name.
    """
    resource = Resource.create({SERVICE_NAME: SERVICE, SERVICE_VERSION: __version__})
    provider = TracerProvider(
        resource=resource.merge(OTELResourceDetector().detect()),  # the environment overrides the defaults
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield Tracing(provider.get_tracer(SERVICE, __version__), group)
    finally:
        provider.shutdown()


def _carrier(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, str]:
    """Return the trace context headers; the last of several with the same name, as in Kafka's Java client."""
    return {
        name: value.decode("ascii", "replace")
        for name, value in headers
        if name in _PROPAGATOR.fields and value is not None
    }
