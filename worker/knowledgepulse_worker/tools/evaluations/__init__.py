"""Scores sent back to the traces that agents' instrumentation recorded, as OpenTelemetry events."""
