"""The documents in a file, and what comes of each; domain maps and labels."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from schemas.convert import (
    AUTO,
    SOURCES,
    Conversion,
    ConversionError,
    Labels,
    Options,
    Source,
    convert,
    source_of,
)
from worker.convert.protobuf import read_exports
from worker.errors import InputError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Converted = tuple[str, Conversion | ConversionError]
"""Where a run was read, as ``file`` or ``file:line``, and what came of it."""


@dataclass(frozen=True)
class _Document:
    """A JSON document, or the error that kept it from being read; no line where it is the whole file."""

    line: int | None
    value: Any

    def place(self, name: str) -> str:
        return name if self.line is None else f"{name}:{self.line}"


class _Label(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    id: str
    success: bool | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)


def convert_lines(name: str, lines: Iterable[bytes], source: str, options: Options) -> Iterator[Converted]:
    """Yield the trace of each run in a file, or the error in its place.

    Args:
        name: the file's.
        lines: what it holds: one JSON document, or one on each line.
        source: the name of its format, or ``auto``, which tells it from the document.
        options: what the source cannot know.
    """
    documents = _documents(lines, binary=source == "otlp")
    for document in documents:
        if isinstance(document.value, ConversionError):
            yield document.place(name), document.value
            continue
        found = source_of(document.value) if source == AUTO else SOURCES[source]
        if found is not None and document.line is not None and found.is_fragment(document.value):
            yield from _gathered(name, found, [document, *documents], options)
            return
        for outcome in convert(document.value, AUTO if found is None else found.name, options):
            yield document.place(name), outcome


def _gathered(name: str, source: Source, documents: list[_Document], options: Options) -> Iterator[Converted]:
    """Convert lines that are one document together."""
    values = []
    for document in documents:
        if isinstance(document.value, ConversionError):
            yield document.place(name), document.value
        elif source.recognises(document.value):
            values.append(document.value)
        else:
            yield document.place(name), ConversionError(f"not {source.name}, as the lines before it are")
    for outcome in convert(values, source.name, options):
        yield name, outcome


def _documents(lines: Iterable[bytes], *, binary: bool) -> Iterator[_Document]:
    """Yield the JSON documents of a file: each line, or the whole of it where the first line is not one.

    Args:
        lines: what the file holds.
        binary: whether what does not begin as JSON is protobuf.
    """
    lines = iter(lines)
    start = next(lines, b"")
    lines = chain([start], lines)
    if binary and start and not start.lstrip(_BYTE_ORDER_MARK).lstrip().startswith((b"{", b"[")):
        yield _Document(None, _from_protobuf(b"".join(lines)))
        return
    filled: Iterator[tuple[int, bytes]] = (
        (number, line) for number, line in enumerate(lines, start=1) if line.strip()
    )
    number, first = next(filled, (1, b""))
    parsed = _parsed(first)
    if isinstance(parsed, ConversionError):
        rest = list(filled)
        whole = _parsed(b"".join([first, *(line for _, line in rest)]))
        if not isinstance(whole, ConversionError):
            yield _Document(None, whole)
            return
        if not rest or isinstance(_parsed(rest[0][1]), ConversionError):
            yield _Document(None, whole)
            return
        filled = iter(rest)
    yield _Document(number, parsed)
    for number, line in filled:
        yield _Document(number, _parsed(line))


def _from_protobuf(data: bytes) -> Any:
    try:
        return read_exports(data)
    except ConversionError as error:
        return error


def _parsed(text: bytes) -> Any:
    """Return the JSON document, or an error where it is none."""
    if not text.strip():
        return ConversionError("empty")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return ConversionError(f"not JSON: {error}")


def read_domains(path: Path) -> dict[str, str]:
    """Return a domain map: a TOML file with a ``name = "domain"`` for each agent, service or project.

    Raises:
        InputError: it is something else.
    """
    try:
        return TypeAdapter(dict[str, str]).validate_python(
            tomllib.loads(path.read_text("utf-8")), strict=True
        )
    except (ValueError, OSError) as error:
        raise InputError(
            f'{path}: not a TOML file of lines such as helm_agent = "code": {_first(error)}'
        ) from error


def read_labels(path: Path) -> dict[str, Labels]:
    """Return the labels of a file: on each line ``{"id": …, "success": …, "confidence": …}``.

    Raises:
        InputError: a line is something else.
    """
    labels = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            label = _Label.model_validate_json(line)
        except ValidationError as error:
            accepted = '{"id": "…", "success": true, "confidence": 0.8}'
            raise InputError(f"{path}:{number}: no label such as {accepted}: {_first(error)}") from error
        labels[label.id] = Labels(label.success, label.confidence)
    return labels


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors(include_url=False)[0]
    return ": ".join([*(str(step) for step in problem["loc"]), problem["msg"]])
