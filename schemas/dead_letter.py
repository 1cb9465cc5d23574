"""The headers of a record on the dead-letter topic.

Names beginning with ``__streams.errors.`` are Kafka Streams' own (KIP-1034), so that tools which know
those read ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field


class DeadLetterHeaders(BaseModel):
    """What the worker appends to the headers of a record that it could not score."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    exception: str = Field(alias="__streams.errors.exception", description="the error's class")
    message: str = Field(alias="__streams.errors.message", description="what was wrong, and where")
    topic: str = Field(alias="__streams.errors.topic", description="the topic that the record came from")
    partition: int = Field(alias="__streams.errors.partition", ge=0, description="its partition there")
    offset: int = Field(alias="__streams.errors.offset", ge=0, description="its offset there")
    reason: Literal["not_json", "invalid_trace", "too_large", "empty", "scoring_failed"] = Field(
        alias="kp-reason"
    )
    value_length: int | None = Field(
        default=None,
        alias="kp-value-length",
        ge=0,
        description="bytes of the original value, where the topic did not take it and it was cut",
    )
    value_sha256: str | None = Field(
        default=None, alias="kp-value-sha256", description="of the original value, where it was cut"
    )
    attempt: int | None = Field(
        default=None, alias="kp-attempt", ge=1, description="set when it has been replayed"
    )

    def to_kafka(self) -> list[tuple[str, bytes]]:
        """Return the headers as Kafka carries them: names with UTF-8 values."""
        return [
            (name, str(value).encode("utf-8", "replace"))
            for name, value in self.model_dump(exclude_none=True).items()
        ]

    @classmethod
    def from_kafka(cls, headers: Iterable[tuple[str, bytes | None]]) -> Self:
        """Read them back; of a name that occurs twice the last counts, since ours are appended."""
        names = {field.alias for field in cls.model_fields.values()}
        ours = {name: value for name, value in headers if name in names and value is not None}
        return cls.model_validate({name: value.decode() for name, value in ours.items()})
