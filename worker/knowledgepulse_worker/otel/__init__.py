"""Traces of an agent that is instrumented with OpenTelemetry, from its own process, without a Collector.

::

    from knowledgepulse_worker import load_settings
    from knowledgepulse_worker.otel import record_traces

    record_traces(load_settings())

Nothing here breaks the agent or makes it wait, but for a few seconds at its end.
"""

from knowledgepulse_worker.extras import extra

with extra("otel"):
    from knowledgepulse_worker.otel.exporter import TraceExporter, record_traces

__all__ = ["TraceExporter", "record_traces"]
