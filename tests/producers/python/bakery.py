"""What runners in Python share: the script's instructions, the tool, and the way to the receiver."""

import json
import os
import sys

SCRIPT = json.loads(os.environ["PRODUCER_SCRIPT"])
RUN = SCRIPT["run"]
OBJECTIVE = SCRIPT["objective"]
VARIANT = os.environ["PRODUCER_VARIANT"]
MODEL = "scripted"
INSTRUCTIONS = "Answer by weighing."
MODEL_URL = os.environ["PRODUCER_MODEL_URL"]
RECEIVER_URL = os.environ["PRODUCER_RECEIVER_URL"]
OUTPUT = os.environ["PRODUCER_OUTPUT"]


def weigh(what: str) -> str:
    """Weigh a thing.

    Args:
        what: the thing to weigh.
    """
    results = SCRIPT["results"][what]
    result = results.pop(0) if len(results) > 1 else results[0]
    if result["fails"]:
        raise RuntimeError(result["text"])
    return result["text"]


def tracer_provider():
    """Return OpenTelemetry's provider, set globally, that exports spans to the receiver."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def by_openinference(*instrumentors):
    """Let instrumentors of OpenInference record, with or without content."""
    from openinference.instrumentation import TraceConfig

    hidden = not SCRIPT["content"]
    config = TraceConfig(hide_inputs=hidden, hide_outputs=hidden)
    provider = tracer_provider()
    for instrumentor in instrumentors:
        instrumentor().instrument(tracer_provider=provider, config=config)


def by_openllmetry(*instrumentors):
    """Let instrumentors of OpenLLMetry record, with or without content."""
    os.environ["TRACELOOP_TRACE_CONTENT"] = str(SCRIPT["content"]).lower()
    provider = tracer_provider()
    for instrumentor in instrumentors:
        instrumentor().instrument(tracer_provider=provider)


def told(error):
    """Print an error that ends a run as the script wants it, such as that of a limit."""
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
