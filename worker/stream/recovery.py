"""Faust's recovery, made to end."""

from __future__ import annotations

from asyncio import Event
from typing import Any

from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery


class Latch(Event):
    """An event that, once set, stays set until it is taken back."""

    def clear(self) -> None:
        """Do nothing: who clears it has not asked whether anyone has seen it yet."""

    def take_back(self) -> None:
        """Clear it."""
        super().clear()


class LatchedRecovery(Recovery):
    """Keeps the end of a recovery until the next one starts.

    Faust's own sets the event when the last changelog record is read, once, and clears it with the next turn
    of the reading loop. When few records are read before anybody waits for the event, it is gone, and the
    worker waits for ever.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ended = Latch()

    @property
    def signal_recovery_end(self) -> Event:
        """Set from the end of a recovery until the next one starts."""
        return self._ended

    def _set_recovery_started(self) -> None:
        super()._set_recovery_started()
        self._ended.take_back()


class LedgerTableManager(TableManager):
    """Faust's table manager with :class:`LatchedRecovery`."""

    @property
    def recovery(self) -> Recovery:
        """The recovery service."""
        if self._recovery is None:
            self._recovery = LatchedRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
