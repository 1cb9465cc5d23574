"""Publish the files of traces that wait in a spool, all over one connection."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from knowledgepulse_kafka.errors import TooLargeError
from knowledgepulse_worker.terminal.printable import printable_line
from knowledgepulse_worker.tools.publish.spool import opened, reject, reject_line
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
        self._connect = connect
        self._deadline = time.monotonic() + limit

    def publish(self, files: Sequence[Path]) -> None:
        """Publish files in their order; one by one where the topic refuses a trace, which is set aside.

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
                if len(begun) == 1:
                    self._set_aside(error, reject(begun[0]))
                else:
                    for file in filter(Path.exists, begun):
                        self.publish([file])
            left = left[len(begun) :]

    def _publish(self, files: Sequence[Path], begun: list[Path]) -> None:
        """Publish files together; ``begun`` gets those that were begun."""
        publisher, ends = self._connect(), deque[tuple[Path, int]]()
        try:
            lines = self._lines(files, publisher, begun, ends)
            publish_lines(lines, publisher, self._deadline - time.monotonic())
        finally:
            published = publisher.published
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
