"""What the release of Kafka that the tests run on can do."""

from __future__ import annotations

import pytest

from support.java_kafka import VERSION


def needs_kafka(release: str) -> pytest.MarkDecorator:
    """Return the mark of a test of something that Kafka can do since a release, such as ``4.0``."""
    reason = f"needs Kafka {release} (TESTS_KAFKA_VERSION is {VERSION})"
    return pytest.mark.skipif(not is_at_least(release), reason=reason)


def is_at_least(release: str) -> bool:
    """Return whether the tests run on a release, such as ``4.0``, or on a later one."""
    return _numbers(VERSION) >= _numbers(release)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
