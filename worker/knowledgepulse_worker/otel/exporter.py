"""A span exporter that makes a trace of each agent run."""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from knowledgepulse_convert import Options
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.run_conversion import CompleteRun, convert_run
from knowledgepulse_worker.tools.common.record_key import KeyBy
from knowledgepulse_worker.tools.publish.delivery import Delivery

GRACE = 1.0
"""Seconds from the end of a root span until its run is converted, since children may end after it."""

LONGEST_WAIT = 3600.0
"""Seconds from the first span of a run until it is converted without its root."""

MAX_BYTES = 67_108_864
"""The most bytes of text in the spans of open runs; beyond, the oldest run is dropped."""

_IDS = re.compile(r"^trace [0-9a-f]{32}(?:, span [0-9a-f]{16})?: ")
"""How an error names a run, without which it is the same for all runs of an instrumentation."""


def record_traces(
    to: Settings | Path | str,
    *,
    key_by: KeyBy = "id",
    spool: Path | str | None = None,
    options: Options | None = None,
) -> TraceExporter:
    """Make a trace of each agent run in this process.

    Adds a :class:`TraceExporter` to OpenTelemetry's tracer provider, and sets a provider if there is none.

    Args:
        to: the settings of the brokers, or a file to which the traces are appended, one JSON object a line.
        key_by: the record key, as of :class:`~knowledgepulse_worker.TracePublisher`.
        spool: a folder for what the brokers have not confirmed when the process ends; ``kp-worker publish
            --spool FOLDER`` publishes it. Without one, it is lost.
        options: trace fields that spans cannot provide, such as the visibility.
    """
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = TraceExporter(to, key_by=key_by, spool=spool, options=options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


@dataclass(eq=False)
class _Run:
    """The spans of a run that have ended, and the bytes of their texts."""

    spans: list[ReadableSpan] = field(default_factory=list)
    size: int = 0
    has_root: bool = False


class TraceExporter(SpanExporter):
    """Gathers the spans of each run, and publishes the run's trace once its root span has ended.

    A root is a span that has no parent in this process. A run in which no model and no tool was called is not
    an agent's, and is passed over. The arguments are those of :func:`record_traces`.
    """

    def __init__(
        self,
        to: Settings | Path | str,
        *,
        key_by: KeyBy = "id",
        spool: Path | str | None = None,
        options: Options | None = None,
    ) -> None:
        self._options = options or Options()
        self._delivery = Delivery(to, key_by, None if spool is None else Path(spool))
        self._begin()
        os.register_at_fork(after_in_child=self._begin_in_child)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._size = 0

    def _begin_in_child(self) -> None:
        """Forget what a process that forked has gathered, and publishes itself."""
        self._begin()
        self._delivery.begin()

    @property
    def lost(self) -> int:
        """The number of traces and runs that could be neither published nor spooled, or not be converted."""
        return self._delivery.lost

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Take spans that have ended; what is made of them is made in another thread."""
        for span in spans:
            self._add(span)
        return SpanExportResult.SUCCESS

    def _add(self, span: ReadableSpan) -> None:
        name, size = trace.format_trace_id(span.context.trace_id), _size(span)
        with self._lock:
            is_first = name not in self._runs
            run = self._runs.setdefault(name, _Run())
            run.spans.append(span)
            run.size += size
            self._size += size
            is_root = span.parent is None or span.parent.is_remote
            run.has_root |= is_root
            dropped = 0
            while self._size > MAX_BYTES:
                _, oldest = self._runs.popitem(last=False)
                self._size -= oldest.size
                dropped += 1
        if dropped:
            self._delivery.lose(dropped, "too many runs are open")
        if is_root or is_first:
            self._delivery.call_later(GRACE if is_root else LONGEST_WAIT, partial(self._complete, name, run))

    def _complete(self, name: str, run: _Run) -> None:
        with self._lock:
            if self._runs.get(name) is not run:  # it is complete already
                return
            del self._runs[name]
            self._size -= run.size
        self._delivery.put(partial(self._traces_of, name, run), run.size)

    def _complete_all(self, *, with_root: bool) -> None:
        with self._lock:
            runs = [(name, run) for name, run in self._runs.items() if run.has_root or not with_root]
        for name, run in runs:
            self._complete(name, run)

    def _traces_of(self, name: str, run: _Run) -> list[bytes]:
        """Convert a run; its ids and times are those of its spans."""
        export = encode_spans(run.spans).SerializeToString()
        converted = convert_run(CompleteRun(name, run.has_root, [export]), self._options)
        for _, message in converted.errors:
            self._delivery.lose(1, _IDS.sub("", message))
        return converted.traces

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Publish the runs whose root has ended; return whether all of them were confirmed in time."""
        self._complete_all(with_root=True)
        return self._delivery.flush(timeout_millis / 1000)

    def shutdown(self) -> None:
        """Publish everything, for a few seconds at most; spool the rest, or count it as lost."""
        self._complete_all(with_root=False)
        self._delivery.close()


def _size(span: ReadableSpan) -> int:
    """Return the number of characters in the texts of a span, which are nearly all of it."""
    values = list((span.attributes or {}).values())
    for event in span.events:
        values += (event.attributes or {}).values()
    return sum(len(value) for value in values if isinstance(value, str))
