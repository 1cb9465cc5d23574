"""Publish traces to the raw topic: from an agent's process, or from files."""
