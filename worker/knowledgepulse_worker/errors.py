"""The project's exceptions.

::

    WorkerError                 base of all errors; the message says what to do
    ├── SettingsError           the configuration is invalid; lists every problem with its setting's name
    ├── InputError              a file or topic given to a command does not hold what the command needs
    ├── EmbeddingError          the embedder failed on a text
    │   └── ModelError          the model cannot be loaded or does not fit; names the file or setting
    ├── TopicError              a topic is missing or does not fit the others
    ├── StartError              a worker cannot start with this configuration; a retry does not help
    ├── MissingExtraError       a package of an optional extra is not installed; names the extra
    ├── StalledError            records are waiting, but none is finished
    ├── SecurityError           a certificate, login or right is refused; names the setting or right
    ├── NoBrokerError           no Kafka broker answers, or none could be found or started (demo and tests)
    ├── DeliveryError           the brokers did not confirm a record or a transaction
    │   ├── TooLargeError       the broker rejected the record, or its batch, as too large
    │   ├── TimestampError      the broker rejected the record's timestamp
    │   └── UnacceptableError   the broker rejected the record for another property
    ├── RedactionError          a single trace cannot be redacted; has a ``reason`` from a closed list
    ├── LedgerError             the changelog is incomplete or has invalid entries
    └── InvalidRecordError      a single record cannot be scored; has the ``reason`` of its dead letter
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

if TYPE_CHECKING:
    from knowledgepulse_schemas.dead_letter import Reason  # not at run time: it would slow down `--help`

RedactionReason = Literal["raised", "invalid", "timeout", "crashed", "too_large"]
"""Why a contributed trace has no redacted copy."""

REDACTION_REASONS: tuple[RedactionReason, ...] = get_args(RedactionReason)


class WorkerError(Exception):
    """Base of the project's errors; the message is written for users."""

    exit_status: ClassVar[int] = 1
    """Exit status of a command that ends with this error."""


class SettingsError(WorkerError):
    """One or more settings are invalid; the message has a line for each."""

    exit_status = os.EX_CONFIG


class InputError(WorkerError):
    """A file or topic given to a command does not have the required content."""


class EmbeddingError(WorkerError):
    """An embedder failed."""


class ModelError(EmbeddingError):
    """The model is missing, is damaged or does not fit the settings."""

    exit_status = os.EX_CONFIG


class TopicError(WorkerError):
    """A topic is missing or unsuitable."""


class StartError(WorkerError):
    """A setting, a topic or the model prevents the start until someone changes it."""

    exit_status = os.EX_CONFIG


class MissingExtraError(WorkerError):
    """A package that an optional extra provides is not installed."""

    exit_status = os.EX_CONFIG


class SecurityError(WorkerError):
    """A broker refuses a login, certificate or right, or its own certificate is not trusted."""

    exit_status = os.EX_CONFIG


class StalledError(WorkerError):
    """The worker makes no progress, and a new process should replace it."""


class NoBrokerError(WorkerError):
    """No Kafka broker answers, or none was found and none could be started."""


class DeliveryError(WorkerError):
    """The brokers rejected a record, or did not confirm a record or a transaction."""


class TooLargeError(DeliveryError):
    """The record exceeds its topic's size limit, alone or together with the rest of its batch."""


class TimestampError(DeliveryError):
    """The topic rejects the record's timestamp (``message.timestamp.*.max.ms``)."""


class UnacceptableError(DeliveryError):
    """The topic rejects the record for another property; a compacted topic takes no record without a key."""


class RedactionError(WorkerError):
    """A contributed trace cannot be redacted.

    Attributes:
        reason: one of :data:`REDACTION_REASONS`.
    """

    def __init__(self, reason: RedactionReason, details: str = "") -> None:
        super().__init__(f"{reason}: {details}" if details else reason)
        self.reason: RedactionReason = reason


class LedgerError(WorkerError):
    """The changelog is incomplete or has invalid entries."""


class InvalidRecordError(WorkerError):
    """A raw record that cannot be scored.

    Attributes:
        reason: the reason of its dead letter (see :mod:`knowledgepulse_schemas.dead_letter`).
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


@contextmanager
def first_of_group() -> Iterator[None]:
    """Raise the first error of a task group as itself, so that its type and its message count."""
    try:
        yield
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
