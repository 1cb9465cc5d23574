"""OpenTelemetry's spans: a record's way through the worker, beside its producer's and its consumers'.

They follow the semantic conventions for messaging (https://opentelemetry.io/docs/specs/semconv/messaging/).
Only a worker that exports spans imports this module.
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

from worker import __version__

logger = logging.getLogger(__name__)

SERVICE = "knowledgepulse-worker"
"""The resource's `service.name`, unless the environment gives another."""

_PROPAGATOR = TraceContextTextMapPropagator()


class Tracing:
    """Makes the spans of each record once its output is confirmed.

    They are made from the times that the lane took on the way, so none is ever left open: a record that a
    lane gives up has no span, and gets one where it is delivered again.

    The context that the producer put into the record's headers is the parent, and its decision to sample
    counts. The output keeps it: a consumer's span stands beside ours. A dead letter is no error of the
    worker, so its span's status stays unset.

    Args:
        tracer: makes them.
        group: the consumer group's name.
    """

    def __init__(self, tracer: Tracer, group: str) -> None:
        self._tracer = tracer
        self._group = group

    def finished(
        self,
        *,
        topic: str,
        partition: int,
        offset: int,
        headers: Sequence[tuple[str, bytes | None]],
        value: bytes | None,
        taken: float,
        embedded: tuple[float, float] | None,
        sent: float,
        output: str,
        verdict: dict[str, AttributeValue | None],
    ) -> None:
        """Make the spans of a record whose output has just been confirmed; an error never reaches the lane.

        Args:
            topic: the raw record's.
            partition: likewise.
            offset: likewise.
            headers: likewise.
            value: likewise; only its size is told.
            taken: when the lane took the record, in seconds of ``time.monotonic``, as all times here.
            embedded: when its batch began and ended; None when the record was not embedded.
            sent: when its output was handed to the producer.
            output: the topic that it went to.
            verdict: what became of it, as attributes ``kp.<name>``; those that are None are left out.
        """
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
            "messaging.consumer.group.name": self._group,
            "messaging.kafka.offset": offset,
            **({"messaging.kafka.message.tombstone": True} if value is None else {}),
            "messaging.message.body.size": len(value or b""),
            **{f"kp.{name}": told for name, told in verdict.items() if told is not None},
        }
        try:
            clock = _Clock()
            span = self._tracer.start_span(
                f"process {topic}",
                _PROPAGATOR.extract(_carrier(headers)),
                SpanKind.CONSUMER,
                attributes,
                start_time=clock.of(taken),
            )
            if embedded is not None:
                self._embedded(span, *map(clock.of, embedded))
            self._published(span, output, clock.of(sent), clock.now)
            span.end(clock.now)
        except Exception:
            logger.exception("%s/%d/%d has no span", topic, partition, offset)

    def _embedded(self, parent: Span, started: int, ended: int) -> None:
        self._tracer.start_span("embed", set_span_in_context(parent), start_time=started).end(ended)

    def _published(self, parent: Span, topic: str, started: int, ended: int) -> None:
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "publish",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
        }
        # No PRODUCER, since it is not its context that the output carries.
        kind = SpanKind.CLIENT
        span = self._tracer.start_span(
            f"publish {topic}", set_span_in_context(parent), kind, attributes, start_time=started
        )
        span.end(ended)


@contextmanager
def otlp_tracing(group: str) -> Iterator[Tracing]:
    """Yield what exports spans by OTLP over HTTP, as the standard ``OTEL_*`` variables say.

    The last ones are sent when the context ends.

    Args:
        group: the consumer group's name.
    """
    resource = Resource.create({SERVICE_NAME: SERVICE, SERVICE_VERSION: __version__})
    provider = TracerProvider(
        resource=resource.merge(OTELResourceDetector().detect()),  # the environment's word counts
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield Tracing(provider.get_tracer(SERVICE, __version__), group)
    finally:
        provider.shutdown()


class _Clock:
    """Nanoseconds since the epoch, of moments that a monotonic clock told.

    Attributes:
        now: when this was made.
    """

    def __init__(self) -> None:
        self.now = time.time_ns()
        self._monotonic = time.monotonic()

    def of(self, moment: float) -> int:
        return self.now - round((self._monotonic - moment) * 1e9)


def _carrier(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, str]:
    """Return the headers of the trace context; of several of a name the last, as Kafka's own client does."""
    return {
        name: value.decode("ascii", "replace")
        for name, value in headers
        if name in _PROPAGATOR.fields and value is not None
    }
