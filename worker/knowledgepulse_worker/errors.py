"""The project's exceptions.

::

    WorkerError                 base of all errors; the message says what to do
    ├── SettingsError           the configuration is invalid; lists every problem with its setting's name
    ├── InputError              a file or topic given to a command does not hold what the command needs
    ├── EmbeddingError          the embedder failed on a text
    │   └── ModelError          the model cannot be loaded or does not fit; names the file or setting
    ├── StartError              a worker cannot start with this configuration; a retry does not help
    ├── MissingExtraError       a package of an optional extra is not installed; names the extra
    ├── StalledError            records are waiting, but none is finished
    ├── RedactionError          a single trace cannot be redacted; has a ``reason`` from a closed list
    ├── AccessError             a registry refuses the key, or an operation
    ├── LedgerError             the changelog is incomplete or has invalid entries
    └── InvalidRecordError      a single record cannot be scored; has the ``reason`` of its dead letter

The errors of topics, deliveries and connections are those of :mod:`knowledgepulse_kafka.errors`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from knowledgepulse_kafka.errors import BrokerError, ClientError, ConfigurationError, SecurityError

if TYPE_CHECKING:
    from knowledgepulse_schemas.dead_letter import (  # not at run time: it would slow down `--help`
        Form,
        Reason,
    )

RedactionReason = Literal["raised", "invalid", "timeout", "crashed", "too_large"]
"""Why a contributed trace has no redacted copy."""

REDACTION_REASONS: tuple[RedactionReason, ...] = get_args(RedactionReason)


class WorkerError(Exception):
    """Base of the project's errors; the message is written for users."""

    exit_status: ClassVar[int] = 1
    """Exit status of a command that ends with this error."""


class SettingsError(WorkerError, ConfigurationError):
    """One or more settings are invalid; the message has a line for each."""

    exit_status = os.EX_CONFIG


class InputError(WorkerError):
    """A file or topic given to a command does not have the required content."""


class EmbeddingError(WorkerError):
    """An embedder failed."""


class ModelError(EmbeddingError):
    """The model is missing, is damaged or does not fit the settings."""

    exit_status = os.EX_CONFIG


class StartError(WorkerError):
    """A setting, a topic or the model prevents the start until someone changes it."""

    exit_status = os.EX_CONFIG


class MissingExtraError(WorkerError):
    """A package that an optional extra provides is not installed."""

    exit_status = os.EX_CONFIG


class StalledError(WorkerError):
    """The worker makes no progress, and a new process should replace it."""


class RedactionError(WorkerError):
    """A contributed trace cannot be redacted.

    Attributes:
        reason: one of :data:`REDACTION_REASONS`.
    """

    def __init__(self, reason: RedactionReason, details: str = "") -> None:
        super().__init__(f"{reason}: {details}" if details else reason)
        self.reason: RedactionReason = reason


class AccessError(WorkerError):
    """A registry refuses the key, or an operation with it."""

    exit_status = os.EX_CONFIG


class LedgerError(WorkerError):
    """The changelog is incomplete or has invalid entries."""


class InvalidRecordError(WorkerError):
    """A raw record that cannot be scored.

    Attributes:
        reason: the reason of its dead letter (see :mod:`knowledgepulse_schemas.dead_letter`).
        form: what its value is; None if that was not examined.
    """

    def __init__(self, reason: Reason, message: str, form: Form | None = None) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.form: Form | None = form


EXPECTED = (WorkerError, ClientError)
"""The errors whose messages are written for users; all others are defects."""


def exit_status_of(error: WorkerError | ClientError) -> int:
    """Return the exit status of a command that ends with an expected error."""
    if isinstance(error, WorkerError):
        return error.exit_status
    return os.EX_CONFIG if isinstance(error, ConfigurationError | SecurityError | BrokerError) else 1
