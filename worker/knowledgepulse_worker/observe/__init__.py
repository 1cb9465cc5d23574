"""Observability: metrics, recent records, the status page and spans."""
