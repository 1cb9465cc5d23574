"""Scores reasoning traces from Kafka and routes them by quality."""

from importlib.metadata import version

__version__ = version("knowledgepulse-worker")
