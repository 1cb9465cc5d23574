"""Headers of a record on the dead-letter topic.

The names that begin with ``__streams.errors.`` are those of Kafka Streams (KIP-1034), so that its tools can
read dead letters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Self, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field

UnreadReason: TypeAlias = Literal["undecodable", "too_large"]
"""Why a record could not be read; different limits of the worker may make it readable."""

ContentReason: TypeAlias = Literal["not_json", "invalid_trace", "invalid_headers", "empty"]
"""Why a readable record is not a trace; the same record always has the same reason."""

Reason: TypeAlias = Literal[ContentReason, UnreadReason, "refused", "scoring_failed", "poison"]
"""Why a record became a dead letter; the list is closed, so that the reason can be a metric label."""

REASONS: tuple[Reason, ...] = get_args(Reason)

Form: TypeAlias = Literal[
    "registry_json",
    "registry_avro",
    "registry_protobuf",
    "gzip",
    "zstd",
    "lz4",
    "snappy",
    "zlib",
    "utf_16",
    "byte_order_mark",
    "binary",
    "base64",
    "array",
    "documents",
    "text",
    "cloudevent",
    "connect",
    "debezium",
    "envelope",
    "address",
    "trace",
    "json",
    "malformed",
]
"""What the value of a record that is not a trace is; the list is closed, too."""

FORMS: tuple[Form, ...] = get_args(Form)

ATTEMPT = "kp-attempt"
"""Replay count of a record. The client that replays the record writes it among the record's own headers."""

_FIRST = "__streams.errors.exception"
_ATTEMPT_VALUE = re.compile(rb"[1-9][0-9]{0,8}")


class DeadLetterHeaders(BaseModel):
    """The headers that the worker appends to a record that it could not score."""

    model_config = ConfigDict(
        extra="forbid", populate_by_name=True, serialize_by_alias=True, defer_build=True
    )

    exception: str = Field(alias=_FIRST, description="class name of the error")
    message: str = Field(alias="__streams.errors.message", description="error message, with the location")
    topic: str = Field(alias="__streams.errors.topic", description="source topic of the record")
    partition: int = Field(alias="__streams.errors.partition", ge=0, description="source partition")
    offset: int = Field(alias="__streams.errors.offset", ge=0, description="source offset")
    reason: Reason = Field(alias="kp-reason")
    form: Form | None = Field(
        default=None,
        alias="kp-form",
        description="what the value is, if the reason is `not_json` or `invalid_trace`",
    )
    unwrap: str | None = Field(
        default=None,
        alias="kp-unwrap",
        description="the steps that could lead to a trace inside the value, separated by spaces, if the "
        "worker unwraps values",
    )
    value_length: int | None = Field(
        default=None,
        alias="kp-value-length",
        ge=0,
        description="length of the original value in bytes, if it was too large for the topic and truncated",
    )
    value_sha256: str | None = Field(
        default=None,
        alias="kp-value-sha256",
        description="SHA-256 of the original value, if it was truncated",
    )
    key_length: int | None = Field(
        default=None,
        alias="kp-key-length",
        ge=0,
        description="length of the original key in bytes, if it was truncated",
    )
    key_sha256: str | None = Field(
        default=None, alias="kp-key-sha256", description="SHA-256 of the original key, if it was truncated"
    )
    headers_count: int | None = Field(
        default=None,
        alias="kp-headers-count",
        ge=0,
        description="number of the record's headers, if they were left out",
    )
    headers_length: int | None = Field(
        default=None,
        alias="kp-headers-length",
        ge=0,
        description="total length in bytes of the names and values of those headers",
    )
    headers_sha256: str | None = Field(
        default=None,
        alias="kp-headers-sha256",
        description="SHA-256 of those headers; each is hashed as the lengths of name and value in 4 bytes "
        "each, followed by name and value",
    )
    headers: str | None = Field(
        default=None,
        alias="kp-headers",
        description="all headers of the record, if any was left out because its name is not UTF-8; a JSON "
        "array of base64-encoded name and value pairs, in which a null value stays null",
    )
    attempt: int | None = Field(
        default=None, alias=ATTEMPT, ge=1, description="number of replays; absent before the first replay"
    )

    def to_kafka(self) -> list[tuple[str, bytes]]:
        """Return the headers as Kafka record headers with UTF-8 values."""
        return [
            (name, str(value).encode("utf-8", "replace"))
            for name, value in self.model_dump(exclude_none=True).items()
        ]

    @classmethod
    def from_kafka(cls, headers: Sequence[tuple[str, bytes | None]]) -> Self:
        """Parse the headers of a dead letter, ignoring the record's own except the last ``kp-attempt``.

        Raises:
            ValueError: the record is not a dead letter.
        """
        names = {field.alias for field in cls.model_fields.values()}
        attempts = [h for h in headers if h[0] == ATTEMPT and _ATTEMPT_VALUE.fullmatch(h[1] or b"")]
        ours = [h for h in headers[_start(headers) :] if h[0] in names and h[0] != ATTEMPT]
        return cls.model_validate(
            {name: value.decode() for name, value in [*ours, *attempts] if value is not None}
        )

    @staticmethod
    def original(headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers that the record had before it became a dead letter."""
        return tuple(headers[: _start(headers)])


def _start(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return the index of the first appended header, or the length if there is none."""
    return max((index for index, (name, _) in enumerate(headers) if name == _FIRST), default=len(headers))
