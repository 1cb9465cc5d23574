"""A document with four times as many of anything takes at most five times as long to convert."""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest

from knowledgepulse_convert import AUTO, ConversionError, convert
from support.conversions import small_documents

FEW, TIMES = 100, 4
MOST = 5.0
"""The time for :data:`TIMES` as many, in times of the time for :data:`FEW`."""
NOISE = 0.02
"""Seconds of CPU time below which a difference says nothing."""
TRIES = 12

DOCUMENTS = small_documents()


def lists_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each list that is not empty, the first items of lists only."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from lists_of(member, (*path, name))
    elif isinstance(value, list) and value:
        yield path
        yield from (found for item in value[:3] for found in lists_of(item, (*path, value.index(item))))


def repeated(document: Any, path: tuple[Any, ...], times: int) -> Any:
    """Return a copy whose list at a path has its items so many times over, with ids of their own."""
    document = copy.deepcopy(document)
    if not path:
        return [each for number in range(times) for each in renamed(document, number)]
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = [each for number in range(times) for each in renamed(holder[path[-1]], number)]
    return document


def renamed(value: Any, number: int) -> Any:
    """Return a value in which what looks like an id differs for each number."""
    if isinstance(value, dict):
        return {
            name: f"{member}-{number}"
            if isinstance(member, str) and "id" in name.lower() and number
            else renamed(member, number)
            for name, member in value.items()
        }
    return [renamed(item, number) for item in value] if isinstance(value, list) else value


def seconds(document: Any) -> float:
    """Return the CPU time of a conversion, whatever comes of it."""
    given = iter(document) if isinstance(document, list) else document
    gc.disable()  # it would look at all that other tests have left
    began = time.process_time()
    try:
        for outcome in convert(given, AUTO):
            if not isinstance(outcome, ConversionError):
                outcome.trace.to_json()
    except ConversionError:
        pass
    finally:
        gc.enable()
    return time.process_time() - began


CASES = [
    pytest.param(document, path, id=f"{name}: {'/'.join(map(str, path)) or 'lines'}")
    for name, document in DOCUMENTS.items()
    for path in dict.fromkeys(lists_of(document))
]


@pytest.mark.parametrize(("document", "path"), CASES)
def test_what_repeats_takes_linear_time(document, path):
    assert_linear(lambda times: repeated(document, path, times))


def inspect_log(inputs):
    """A log whose inputs no message tells."""
    log = copy.deepcopy(DOCUMENTS["inspect"])
    (sample,) = log["samples"]
    sample["input"] = [{"role": "user", "content": f"an input {number} " * 5} for number in range(inputs)]
    sample["messages"] = [
        message | {"content": f"{message['content']} {number}" + " and so on" * 30}
        for number in range(inputs // 2)
        for message in sample["messages"]
    ]
    return log


def gemini_session(calls):
    """A session with a message that is written twice."""
    message = {
        "id": "m1",
        "type": "gemini",
        "content": "",
        "toolCalls": [{"id": f"c{number}", "name": "ls", "args": {"n": number}} for number in range(calls)],
    }
    user = {"id": "m0", "type": "user", "content": "List."}
    return {"sessionId": "s", "projectHash": "p", "messages": [user, message, message]}


@pytest.mark.parametrize("document", [inspect_log, gemini_session])
@pytest.mark.slow
def test_what_took_quadratic_time_takes_linear_time(document):
    """Minutes, for inputs that no message tells, and for calls in a message that was written twice."""
    assert_linear(lambda times: document(12 * times))


def assert_linear(document):
    few, many = (document(times) for times in (FEW, FEW * TIMES))

    for _ in range(TRIES):  # another process may take the processor's caches
        short, long = seconds(few), seconds(many)
        if long <= MOST * max(short, NOISE):
            return
    pytest.fail(f"{FEW}: {short:.3f} s, {FEW * TIMES}: {long:.3f} s")
