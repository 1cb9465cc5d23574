"""Publish traces to the raw topic: from an agent's process, or from files."""

from knowledgepulse_worker.tools.publish.trace_publisher import TracePublisher, publish_lines

__all__ = ["TracePublisher", "publish_lines"]
