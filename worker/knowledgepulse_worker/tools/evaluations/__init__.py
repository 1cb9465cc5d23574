"""Send scores as OpenTelemetry events to the spans that agents' instrumentation recorded."""
