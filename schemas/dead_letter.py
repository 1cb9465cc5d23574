"""The headers of a record on the dead-letter topic.

Names beginning with ``__streams.errors.`` are Kafka Streams' own (KIP-1034), so that tools which know
those read ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

ATTEMPT = "kp-attempt"
"""How often a record was replayed; who replays it writes it, so it stands among the record's own headers."""

_FIRST = "__streams.errors.exception"
_ATTEMPT_VALUE = re.compile(rb"[1-9][0-9]{0,8}")


class DeadLetterHeaders(BaseModel):
    """What the worker appends to the headers of a record that it could not score."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    exception: str = Field(alias=_FIRST, description="the error's class")
    message: str = Field(alias="__streams.errors.message", description="what was wrong, and where")
    topic: str = Field(alias="__streams.errors.topic", description="the topic that the record came from")
    partition: int = Field(alias="__streams.errors.partition", ge=0, description="its partition there")
    offset: int = Field(alias="__streams.errors.offset", ge=0, description="its offset there")
    reason: Literal[
        "not_json",
        "invalid_trace",
        "invalid_headers",
        "too_large",
        "empty",
        "undecodable",
        "scoring_failed",
        "poison",
    ] = Field(alias="kp-reason")
    value_length: int | None = Field(
        default=None,
        alias="kp-value-length",
        ge=0,
        description="bytes of the original value, where the topic did not take it and it was cut",
    )
    value_sha256: str | None = Field(
        default=None, alias="kp-value-sha256", description="of the original value, where it was cut"
    )
    key_length: int | None = Field(
        default=None, alias="kp-key-length", ge=0, description="bytes of the original key, where it was cut"
    )
    key_sha256: str | None = Field(
        default=None, alias="kp-key-sha256", description="of the original key, where it was cut"
    )
    headers_count: int | None = Field(
        default=None,
        alias="kp-headers-count",
        ge=0,
        description="how many headers the record had, where they were left out",
    )
    headers_length: int | None = Field(
        default=None,
        alias="kp-headers-length",
        ge=0,
        description="bytes of the names and values of those headers",
    )
    headers_sha256: str | None = Field(
        default=None,
        alias="kp-headers-sha256",
        description="of those headers: for each, the lengths of name and value as 4 bytes, then both",
    )
    headers: str | None = Field(
        default=None,
        alias="kp-headers",
        description="the record's headers, where a name is not UTF-8 and its header was left out: a JSON "
        "array with name and value of each in base64; a value that is null stays null",
    )
    attempt: int | None = Field(
        default=None, alias=ATTEMPT, ge=1, description="how often it has been replayed; not set before"
    )

    def to_kafka(self) -> list[tuple[str, bytes]]:
        """Return the headers as Kafka carries them: names with UTF-8 values."""
        return [
            (name, str(value).encode("utf-8", "replace"))
            for name, value in self.model_dump(exclude_none=True).items()
        ]

    @classmethod
    def from_kafka(cls, headers: Sequence[tuple[str, bytes | None]]) -> Self:
        """Read them back, whatever the record carried before; of several ``kp-attempt`` the last counts.

        Raises:
            ValueError: these are not a dead letter's.
        """
        names = {field.alias for field in cls.model_fields.values()}
        attempts = [h for h in headers if h[0] == ATTEMPT and _ATTEMPT_VALUE.fullmatch(h[1] or b"")]
        ours = [h for h in headers[_beginning(headers) :] if h[0] in names and h[0] != ATTEMPT]
        return cls.model_validate(
            {name: value.decode() for name, value in [*ours, *attempts] if value is not None}
        )

    @staticmethod
    def original(headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes | None], ...]:
        """Return what the record carried before it was a dead letter."""
        return tuple(headers[: _beginning(headers)])


def _beginning(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return the place of the first of ours, which are appended; the end when there is none."""
    return max((place for place, (name, _) in enumerate(headers) if name == _FIRST), default=len(headers))
