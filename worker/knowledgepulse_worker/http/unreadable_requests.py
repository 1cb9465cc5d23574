"""Requests that cannot be read: one line in the log counts them, as anyone may send as many as they like."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from knowledgepulse_kafka.log_interval import LogInterval

logger = logging.getLogger(__name__)


class UnreadableRequests(logging.Filter):
    """Counts what aiohttp would log with a traceback each; lets everything else pass.

    Args:
        interval: limits how often their number is logged.
    """

    def __init__(self, interval: LogInterval | None = None) -> None:
        super().__init__()
        self._interval = interval or LogInterval()
        self._number = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is about anything else."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError | RequestPayloadError):
            return True
        self._number += 1
        if self._interval.let_pass(__name__):
            logger.warning(
                "requests to the web port that could not be read: %d, the last one with %s",
                *(self._number, type(error).__name__),
            )
            self._number = 0
        return False


requests = logging.getLogger(f"{__name__}.requests")
"""The logger of the web port's requests."""

requests.addFilter(UnreadableRequests())
