"""What the release of Kafka that the tests run on can do."""

from __future__ import annotations

import pytest

from support.java_kafka import VERSION


def needs_kafka(release: str) -> pytest.MarkDecorator:
    """Return the mark of a test of something that Kafka can do since a release, such as ``4.0``."""
    is_older = _numbers(VERSION) < _numbers(release)
    return pytest.mark.skipif(is_older, reason=f"needs Kafka {release} (TESTS_KAFKA_VERSION is {VERSION})")


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
