"""The pages of a backend's answers: they end, and what is too large for one is asked for in smaller ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from knowledgepulse_worker.tools.backends.backend import LATEST_MS, RunError, RunListing
from knowledgepulse_worker.tools.backends.backend_client import (
    BackendClient,
    TooLargeError,
    UnknownFormError,
)

MAX_SPANS = 20_000
"""Largest number of spans of runs that are read together."""

MAX_BYTES = 134_217_728
"""Largest size in bytes of runs that are read together, as the backend writes them."""

_MAX_EMPTY = 10
"""Number of empty pages in a row after which there is no end to be expected."""


class Page(NamedTuple):
    """Rows of an answer, and the cursor of the next page; None or empty after the last one."""

    rows: list[Any]
    cursor: str | None


AskFunction = Callable[[str | None, int], Awaitable[Page]]
"""Asks for the page at a cursor, which is None for the first one, with at most so many rows."""


async def all_pages(place: str, ask: AskFunction, limit: int) -> AsyncIterator[list[Any]]:
    """Yield the rows of all pages.

    Args:
        place: says in messages what was asked for.
        ask: asks for a page.
        limit: the number of a page's rows; there are fewer if an answer would be too large.

    Raises:
        UnknownFormError: a cursor came twice, or there were ten empty pages in a row.
        TooLargeError: a single row is too large.
    """
    cursor, seen, number, empty = None, set[int](), 1, 0
    while True:
        try:
            page = await ask(cursor, limit)
        except TooLargeError:
            if limit == 1:
                raise
            limit = max(limit // 4, 1)
            continue
        yield page.rows
        if not page.cursor:
            return
        empty = 0 if page.rows else empty + 1
        if empty == _MAX_EMPTY:
            raise UnknownFormError(f"{place}: page {number:,} is the tenth empty one in a row")
        if hash(page.cursor) in seen:
            raise UnknownFormError(f"{place}: page {number:,} has the cursor of an earlier one")
        seen.add(hash(page.cursor))
        cursor, number = page.cursor, number + 1


async def whole(client: BackendClient, pages: AsyncIterator[list[Any]]) -> list[Any]:
    """Return the rows of all pages of runs.

    Raises:
        RunError: there are more than :data:`MAX_SPANS`, or they are larger than :data:`MAX_BYTES`.
    """
    rows, before = list[Any](), client.received
    async for page in pages:
        rows += page
        if len(rows) > MAX_SPANS:
            raise RunError(f"has more than {MAX_SPANS:,} spans")
        if client.received - before > MAX_BYTES:
            raise RunError(f"has more than {MAX_BYTES // 2**20} MiB")
    return rows


class Listed(Protocol):
    """A row of a list of runs."""

    def listing(self) -> RunListing:
        """Return the run."""


Row = TypeVar("Row")


def row_of(row: Any, form: type[Row]) -> Row:
    """Return a row of a run's content; raise a RunError if it has another form."""
    try:
        return msgspec.convert(row, form)
    except ValueError as error:
        raise RunError(f"has an unknown form: {error}") from None


def listings_of(rows: list[Any], form: type[Listed]) -> list[RunListing]:
    """Return the runs of rows."""
    return [_listing(row, form) for row in rows]


def _listing(row: Any, form: type[Listed]) -> RunListing:
    try:
        return msgspec.convert(row, form).listing()
    except ValueError as error:
        return RunListing("", LATEST_MS, f"has an unknown form: {error}")
