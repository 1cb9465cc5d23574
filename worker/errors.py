"""Everything that this project raises on purpose.

::

    WorkerError                 a person can act on the message
    ├── SettingsError           the configuration: every problem at once, each with its setting's name
    ├── InputError              a file or topic given to a command does not hold what the command needs
    ├── EmbeddingError          the model cannot be loaded, does not fit the cache, or failed on a text
    ├── TopicError              a topic is missing, or does not fit the others
    ├── StartError              a worker cannot start as it is configured; trying again does not help
    ├── MissingExtraError       a package that an extra of the installation brings is missing; names the extra
    ├── StalledError            records wait, and nothing is finished
    ├── SecurityError           a certificate, a login or a right is refused; names the setting or the right
    ├── NoBrokerError           no Kafka broker answers, or could be found or started (demo and tests)
    ├── DeliveryError           the broker did not confirm a record; nothing is committed past it
    │   ├── TooLargeError       it refused the record, or the record's batch, as too large
    │   └── TimestampError      it refused the record's timestamp
    ├── LedgerError             the changelog holds what cannot be, or less than it must
    └── RejectedRecord          this one record cannot be scored; carries the dead letter's bounded ``reason``
"""

from __future__ import annotations

import os
from typing import ClassVar, Literal, get_args

Reason = Literal[
    "not_json",
    "invalid_trace",
    "invalid_headers",
    "too_large",
    "empty",
    "undecodable",
    "scoring_failed",
    "poison",
]
"""Why a record went to the dead-letter topic: a closed set, so that it can be a metric's label."""

REASONS: tuple[Reason, ...] = get_args(Reason)


class WorkerError(Exception):
    """Base of every error that is raised on purpose; its text is written for the person who reads it."""

    exit_status: ClassVar[int] = 1
    """Of the command that it ends."""


class SettingsError(WorkerError):
    """One or more settings are wrong; the text has a line for each."""

    exit_status = os.EX_CONFIG


class InputError(WorkerError):
    """A file or topic that a command was given does not hold what the command needs."""


class EmbeddingError(WorkerError):
    """An embedder could not be made, does not fit, or failed."""


class TopicError(WorkerError):
    """A topic is missing, or differs from what the worker needs."""


class StartError(WorkerError):
    """A setting, a topic or the model keeps a worker from starting; a person must change something first."""

    exit_status = os.EX_CONFIG


class MissingExtraError(WorkerError):
    """A package is not installed that an extra of the installation brings."""

    exit_status = os.EX_CONFIG


class SecurityError(WorkerError):
    """A broker refuses a login, a certificate or a right, or its own certificate cannot be trusted."""

    exit_status = os.EX_CONFIG


class StalledError(WorkerError):
    """The worker has stopped moving, and a fresh process should take its place."""


class NoBrokerError(WorkerError):
    """No Kafka broker answers, or none was found and none could be started."""


class DeliveryError(WorkerError):
    """The broker refused or did not confirm a record."""


class TooLargeError(DeliveryError):
    """The record is larger than its topic takes, alone or with the others of its batch."""


class TimestampError(DeliveryError):
    """The topic does not take the record's timestamp (``message.timestamp.*.max.ms``)."""


class LedgerError(WorkerError):
    """The ledger's changelog is not what it must be."""


class RejectedRecord(WorkerError):  # noqa: N818 - a record is rejected; the error is the record's
    """A raw record that cannot be scored.

    Attributes:
        reason: why, from the closed set :data:`REASONS`.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
