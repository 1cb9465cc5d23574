"""Publish the files of traces that wait in a spool, all over one connection."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from knowledgepulse_kafka.errors import TooLargeError
from knowledgepulse_worker.tools.publish.spool import opened, reject, reject_line, replace
from knowledgepulse_worker.tools.publish.trace_publisher import PublishProgress, TracePublisher, publish_lines
from knowledgepulse_worker.tools.terminal.console import tell

_Item = TypeVar("_Item")


class WaitingFiles:
    """Publishes files, and deletes each once the brokers have confirmed all of it.

    Args:
        connect: returns a publisher that is not entered yet.
        limit: seconds for all files.

    Attributes:
        records: the number of records that were published.
        without_key: the number of those without a key.
        rejected: the number of files that were set aside, also those with a single trace.
    """

    def __init__(self, connect: Callable[[], TracePublisher], limit: float) -> None:
        self.records = self.without_key = self.rejected = 0
        self._published = PublishProgress()
        self._numbers = dict[tuple[Path, int], int | None]()
        self._connect = connect
        self._deadline = time.monotonic() + limit

    def publish(self, files: Sequence[Path]) -> None:
        """Publish files in their order; a trace that is too large for settings or topic is set aside.

        Raises:
            NoBrokerError: no broker can be reached, or the time is over.
            DeliveryError: the brokers rejected a trace for another reason.
        """
        left = list(files)
        while left:
            begun = list[Path]()
            try:
                self._publish(left, begun)
            except TooLargeError as error:
                self._publish_apart(begun, error)
            left = left[len(begun) :]

    def _publish_apart(self, begun: Sequence[Path], error: TooLargeError) -> None:
        """Publish what is left of files, among whose traces is one that the topic refuses: by halves."""
        left = {file: self._left_of(file) for file in begun if file.exists()}
        if sum(map(len, left.values())) == 1:
            (refused,) = (part for file, lines in left.items() for part in replace(file, lines))
            self._set_aside(error, reject(refused))
            return
        parts = [_halves(lines) if len(left) == 1 else [lines] for lines in left.values()]
        files = [own for file, of_file in zip(left, parts, strict=True) for own in replace(file, *of_file)]
        for half in _halves(files):
            self.publish(half)

    def _left_of(self, file: Path) -> list[tuple[int, bytes]]:
        """Return the lines of a file that are to be published yet, with their numbers."""
        left = []
        with file.open("rb") as lines:
            for place, line in enumerate(lines, 1):
                number = self._numbers.get((file, place), sys.maxsize)  # not read yet
                if number is None or not line.strip():
                    continue
                if number >= self._published.records or number in self._published.left:
                    left.append((place, line))
        return left

    def _publish(self, files: Sequence[Path], begun: list[Path]) -> None:
        """Publish files together; ``begun`` gets those that were begun."""
        publisher, ends = self._connect(), deque[tuple[Path, int]]()
        self._published = publisher.published
        self._numbers.clear()
        try:
            lines = self._lines(files, publisher, begun, ends)
            publish_lines(lines, publisher, self._deadline - time.monotonic())
        finally:
            _delete(ends, self._published.confirmed)
            self.records += self._published.records - len(self._published.left)
            self.without_key += self._published.without_key

    def _lines(
        self,
        files: Sequence[Path],
        publisher: TracePublisher,
        begun: list[Path],
        ends: deque[tuple[Path, int]],
    ) -> Iterator[bytes]:
        """Yield the lines of files, but those that are too large; ``ends`` gets where each file ends."""
        number = 0
        for file in files:
            begun.append(file)
            _delete(ends, publisher.published.confirmed)
            if (lines := opened(file)) is None:
                self._set_aside(f"{file}: is no file, such as a link or a folder", reject(file))
                continue
            with lines:
                for place, line in enumerate(lines, 1):
                    try:
                        publisher.require_size(line.strip())
                    except TooLargeError as error:
                        self._set_aside(error, reject_line(file, place, line))
                        self._numbers[file, place] = None
                    else:
                        self._numbers[file, place] = number
                        number += bool(line.strip())
                        yield line
            ends.append((file, number))

    def _set_aside(self, problem: object, kept: Path) -> None:
        self.rejected += 1
        tell(f"{problem}; kept in {kept}")


def _halves(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    middle = (len(items) + 1) // 2
    return [half for half in (items[:middle], items[middle:]) if half]


def _delete(ends: deque[tuple[Path, int]], confirmed: int) -> None:
    """Delete the files all of whose records are confirmed."""
    while ends and ends[0][1] <= confirmed:
        ends.popleft()[0].unlink()
