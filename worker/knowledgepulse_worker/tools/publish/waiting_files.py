"""Publish the files of traces that wait in a spool, all over one connection."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from knowledgepulse_kafka.errors import TooLargeError
from knowledgepulse_worker.terminal.printable import printable_line
from knowledgepulse_worker.tools.publish.spool import opened, reject, reject_line, split
from knowledgepulse_worker.tools.publish.trace_publisher import TracePublisher, publish_lines
from knowledgepulse_worker.tools.terminal.console import errors


class WaitingFiles:
    """Publishes files, and deletes each once the brokers have confirmed all of it.

    Args:
        connect: returns a publisher that is not entered yet.
        limit: seconds for all files.

    Attributes:
        records: the number of records that were sent.
        without_key: the number of those without a key.
        rejected: the number of files that were set aside, also those with a single trace.
    """

    def __init__(self, connect: Callable[[], TracePublisher], limit: float) -> None:
        self.records = self.without_key = self.rejected = 0
        self._confirmed = 0
        self._aside = set[int]()
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
        if len(begun) > 1:
            files = list(filter(Path.exists, begun))
            middle = (len(files) + 1) // 2
            for half in (files[:middle], files[middle:]):
                self.publish(half)
            return
        (file,) = begun
        lines = self._unconfirmed(file)
        if len(lines) > 1:
            self.publish(split(file, lines))
        else:
            self._set_aside(error, reject(file))

    def _unconfirmed(self, file: Path) -> list[tuple[int, bytes]]:
        """Return the lines, with their numbers, of the only file that was begun."""
        numbered = enumerate(file.read_bytes().splitlines(keepends=True), 1)
        lines = [(place, line) for place, line in numbered if line.strip() and place not in self._aside]
        return lines[self._confirmed :]

    def _publish(self, files: Sequence[Path], begun: list[Path]) -> None:
        """Publish files together; ``begun`` gets those that were begun."""
        publisher, ends = self._connect(), deque[tuple[Path, int]]()
        try:
            lines = self._lines(files, publisher, begun, ends)
            publish_lines(lines, publisher, self._deadline - time.monotonic())
        finally:
            published = publisher.published
            self._confirmed = published.confirmed
            _delete(ends, published.confirmed)
            self.records += published.records
            self.without_key += published.without_key

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
            self._aside.clear()
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
                        self._aside.add(place)
                    else:
                        number += bool(line.strip())
                        yield line
            ends.append((file, number))

    def _set_aside(self, problem: object, kept: Path) -> None:
        self.rejected += 1
        errors.print(printable_line(f"{problem}; kept in {kept}"), markup=False, emoji=False)


def _delete(ends: deque[tuple[Path, int]], confirmed: int) -> None:
    """Delete the files all of whose records are confirmed."""
    while ends and ends[0][1] <= confirmed:
        ends.popleft()[0].unlink()
