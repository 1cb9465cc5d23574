"""Publish traces to the raw topic: from an agent's process, or from files."""

from knowledgepulse_worker.tools.publish.trace_publisher import PublishProgress, TracePublisher, publish_lines

__all__ = ["PublishProgress", "TracePublisher", "publish_lines"]
