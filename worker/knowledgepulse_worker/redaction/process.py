"""Call the redaction function in its own process, off the event loop and within a time limit."""

from __future__ import annotations

from knowledgepulse_worker.child_process import CallError, ChildProcess
from knowledgepulse_worker.errors import RedactionError, SettingsError
from knowledgepulse_worker.redaction.function import SETTING

_FACTORY = "knowledgepulse_worker.redaction.function:redacting"


class RedactionProcess(ChildProcess):
    """A process that redacts one trace at a time and is replaced when it ends.

    This is an asynchronous context manager, which starts the process on entry.

    Args:
        function: ``module:function``; takes a trace as a dict and returns the redacted one.
        timeout: time limit of a call in seconds.
    """

    def __init__(self, function: str, timeout: float) -> None:
        super().__init__(_FACTORY, function.encode(), timeout, f"{SETTING}: {function}")

    async def redact(self, value: bytes) -> bytes:
        """Return the JSON that the function makes of a trace; it may not be a valid trace.

        Raises:
            RedactionError: the function raised (``raised``), took too long (``timeout``) or ended its process
                (``crashed``).
        """
        try:
            return await self.call(value)
        except CallError as error:
            raise RedactionError(error.reason, error.details) from None
        except SettingsError as error:
            raise RedactionError("crashed", str(error)) from error
