"""Headers of an output record: the producer's, which may bear any names, and then the worker's."""

from __future__ import annotations

from collections.abc import Iterable


def last_header(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    """Return the value of the last header of a name, which is the worker's own; None where there is none.

    Kafka's clients differ in what they return of several headers with one name, and a producer can write a
    ``kp-source`` or ``kp-score`` of its own.

    Args:
        headers: a record's, in order, as most clients give them.
        name: such as ``kp-source``.
    """
    value = None
    for header, content in headers:
        if header == name:
            value = content
    return value
