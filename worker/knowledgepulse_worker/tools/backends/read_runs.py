"""Read the content of runs, and find those that cannot be read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.tools.backends.backend import (
    FAULTS,
    Backend,
    RunContent,
    RunError,
    RunListing,
    batches,
    fault_text,
)
from knowledgepulse_worker.tools.backends.backend_client import (
    BackendRefusal,
    TooLargeError,
    UnknownFormError,
)


class UnreadableRun(NamedTuple):
    """A run that is passed over, and why."""

    listing: RunListing
    problem: str


async def listed_runs(backend: Backend, since_ms: int | None) -> AsyncIterator[list[RunListing]]:
    """Yield the pages of a backend's runs; raise an InputError if it refuses."""
    try:
        async for page in backend.runs(since_ms):
            yield page
    except BackendRefusal as refused:
        raise InputError(f"{backend.url}: {refused}") from None


class RunReader:
    """Reads runs together, and one by one if one of them cannot be read.

    A run whose own content is odd is passed over. If the backend refuses one, or answers in an unknown form,
    that may be the run or the backend: it is the run if the backend has been read since.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._has_read = False

    async def read(self, listings: Sequence[RunListing]) -> AsyncIterator[RunContent | UnreadableRun]:
        """Yield the content of runs.

        Raises:
            InputError: the backend refuses, does not answer or answers in an unknown form.
            SecurityError: it refuses the key.
        """
        doubtful = list[tuple[RunListing, BackendRefusal | UnknownFormError]]()
        readable = [listing for listing in listings if listing.problem is None]
        for listing in listings:
            if listing.problem is not None:
                yield UnreadableRun(listing, listing.problem)
        for batch in batches(readable, self._backend.together):
            for found in await self._together(batch, doubtful):
                yield found
        for listing, error in doubtful:
            if not self._has_read:
                raise error if isinstance(error, InputError) else InputError(f"{self._backend.url}: {error}")
            yield UnreadableRun(listing, str(error))

    async def _together(
        self,
        listings: Sequence[RunListing],
        doubtful: list[tuple[RunListing, BackendRefusal | UnknownFormError]],
    ) -> list[RunContent | UnreadableRun]:
        try:
            contents = await self._backend.read(listings)
        except (RunError, BackendRefusal, UnknownFormError, *FAULTS) as error:
            if len(listings) > 1:
                return [found for listing in listings for found in await self._together([listing], doubtful)]
            (listing,) = listings
            if isinstance(error, BackendRefusal | UnknownFormError) and not isinstance(error, TooLargeError):
                doubtful.append((listing, error))
                return []
            is_own = isinstance(error, RunError | TooLargeError)
            return [UnreadableRun(listing, printable(str(error)) if is_own else fault_text(error))]
        self._has_read = True
        return [*contents]
