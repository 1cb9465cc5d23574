"""Observability: metrics, probes, the status page, tracing."""
