"""The section about the values of records."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from knowledgepulse_worker.settings.section import Section

FRAME = "frame"
TEXT = "text"
POINTER = re.compile(r'(?:/(?:[^\x00-\x20\x7f/~"\\,]|~[01])+){1,4}')
"""A JSON Pointer that can be a step; its names have no space, since spaces separate steps in a header."""


def _step(value: str) -> str:
    if value not in (FRAME, TEXT) and not POINTER.fullmatch(value):
        raise ValueError("should be `frame`, `text` or a JSON Pointer of one to four names, such as `/data`")
    return value


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) < len(values):
        raise ValueError("should name each step once")
    return values


class RecordSettings(Section):
    """How the value of a record holds its trace, and what the output holds."""

    unwrap: Annotated[
        tuple[Annotated[str, AfterValidator(_step)], ...], Field(max_length=8), AfterValidator(_distinct)
    ] = Field(
        (),
        description="the steps that may lead to a trace inside a value, in the order in which they are "
        "tried: a list of `frame`, a schema registry's prefix; of JSON Pointers such as `/data`, a member; "
        "and of `text`, a JSON text that holds a document. At most three are taken for one value",
    )
    output: Literal["same", "bare"] = Field(
        "same",
        description="`same`: the output of a wrapped trace is wrapped as before, with the score inside; "
        "`bare`: it is the trace alone",
    )
