"""Headers of an output record: the producer's, with arbitrary names, followed by the worker's."""

from __future__ import annotations

from collections.abc import Iterable


def last_header(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    """Return the value of the last header with this name, which is the worker's, or None if there is none.

    A producer may write its own ``kp-source`` or ``kp-score``, and Kafka clients do not agree on which of
    several headers with the same name they return.

    Args:
        headers: the record's headers, in order.
        name: the header's name, such as ``kp-source``.
    """
    value = None
    for header, content in headers:
        if header == name:
            value = content
    return value
