"""Publish traces to the raw topic."""
