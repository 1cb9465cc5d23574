"""Whether this process may still publish for its partitions.

A group gives a member's partitions to others once it has heard nothing of it for a session. The member may
know nothing of that: it was suspended, or cannot reach the group's coordinator while it reaches all else. It
would publish what it had begun, after its successor has published the same records with scores of its own.
So nothing is sent unless the coordinator has answered a short while ago. This is the lease of Gray and
Cheriton (1989), with the session as its term.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time

logger = logging.getLogger(__name__)

_POLL = 0.05


class Lease:
    """Is held for so long after each request that the group's coordinator has answered.

    Args:
        seconds: less than a session.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked = -math.inf
        self._waiting = 0

    def renew(self, asked: float) -> None:
        """Note that the coordinator knows this member.

        Args:
            asked: when it was asked (``time.monotonic``); its session began anew no earlier than that.
        """
        self._asked = max(self._asked, asked)

    async def hold(self) -> None:
        """Return while the lease is held; else wait until it is."""
        if self._is_held():
            return
        if not self._waiting:
            logger.warning(
                "nothing is sent: the group has not answered for %.1f s; after kafka.session_timeout it "
                "gives the partitions to others",
                time.monotonic() - self._asked,
            )
        self._waiting += 1
        try:
            while not self._is_held():  # noqa: ASYNC110 - it is renewed in the client's thread
                await asyncio.sleep(_POLL)
        finally:
            self._waiting -= 1

    def _is_held(self) -> bool:
        return time.monotonic() - self._asked < self._seconds
