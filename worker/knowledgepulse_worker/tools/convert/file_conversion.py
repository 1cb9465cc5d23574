"""Convert the documents of a file; read domain maps and outcomes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from knowledgepulse_convert import (
    AUTO,
    INPUT_FORMATS,
    Conversion,
    ConversionError,
    InputFormat,
    Options,
    Reward,
    RunOutcome,
    UnreadError,
    convert,
    input_format_of,
    unknown_format,
    unread_kind,
)
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.convert.protobuf import read_exports
from knowledgepulse_worker.tools.convert.unpacking import (
    MAX_DOCUMENT,
    UNPACKING_ERRORS,
    Lines,
    read_member,
)
from knowledgepulse_worker.tools.terminal.lines import file_errors, without_mark
from knowledgepulse_worker.tools.terminal.unsupported_files import (
    ARCHIVE,
    unsupported_beginning,
    unsupported_name,
)

_HEAD_DOCUMENTS = 50
"""Number of documents by which the format of a file is detected."""

LocatedConversion = tuple[str, Conversion | ConversionError]
"""Location of a run, ``file`` or ``file:line``, and the result of its conversion."""


@dataclass(frozen=True)
class _Document:
    """A JSON document or the error from parsing its text; ``line`` is None if it is no line of the file."""

    line: int | None
    value: Any
    member: str | None = None
    text: bytes = b""

    def location(self, file: str) -> str:
        part = self.line if self.member is None else self.member
        return file if part is None else f"{file}:{part}"


_MAX_MEMORY = 64 * 2**20
"""Size in bytes above which an archive is copied to a temporary file."""

_HEADERS = ("header.json", "_journal/start.json")
"""The members of Inspect's archives that describe the evaluation; the second, while it runs."""


_SAMPLES = "samples/"

MAX_CONTAINERS = 4_000_000
"""Objects and lists in a document: in Python, an empty one takes 20 times the bytes that it has in JSON."""

_OUTSIDE_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"|([\[{])', re.DOTALL)


class _Outcome(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    id: str
    success: bool | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    reward: float | None = Field(default=None, allow_inf_nan=False)


def convert_lines(
    name: str, lines: Iterable[bytes], format_name: str, options: Options
) -> Iterator[LocatedConversion]:
    """Convert each run in a file; yield an error in place of a run that cannot be converted.

    ``lines``: the file's content: one JSON document, or one per line.
    """
    unpacked = Lines(name, lines)
    documents = _documents(name, unpacked, binary=format_name == "otlp")
    session, documents = (
        _session_of(documents) if format_name == AUTO else (INPUT_FORMATS[format_name], documents)
    )
    if session is None and format_name == AUTO:
        first = next(documents, None)
        if first is not None and (unread := unread_kind(first.value)) is not None:
            yield first.location(name), UnreadError(unread)  # its other lines say no more
            return
        documents = chain(() if first is None else (first,), documents)
    if session is not None and session.streams:
        failures: list[InputError] = []
        for outcome in convert(_lines_of(documents, failures), session.name, options):
            if failures:
                raise failures[0]
            yield name, outcome
        return
    yield from _convert_documents(name, unpacked, documents, format_name, options)


def _convert_documents(
    name: str, lines: Lines, documents: Iterator[_Document], format_name: str, options: Options
) -> Iterator[LocatedConversion]:
    for document in documents:
        if isinstance(document.value, ConversionError):
            yield document.location(name), document.value
            continue
        input_format = input_format_of(document.value) if format_name == AUTO else INPUT_FORMATS[format_name]
        if input_format is None:
            yield document.location(name), unknown_format(document.value)
            continue
        if document.line is not None and input_format.is_fragment(document.value):
            fragments = lines.bounded(chain([document], documents), _size)
            yield from _convert_fragments(name, input_format, fragments, options)
            return
        for outcome in convert(document.value, input_format.name, options):
            yield document.location(name), outcome


def _size(document: _Document) -> int:
    return len(document.text)


def _session_of(documents: Iterator[_Document]) -> tuple[InputFormat | None, Iterator[_Document]]:
    """Return the format of the first document whose format is known, and all documents.

    A session may begin with lines of any kind.
    """
    head, size = list[_Document](), 0
    input_format = None
    for document in documents:
        head.append(document)
        size += _size(document)
        if (input_format := input_format_of(document.value)) is not None:
            break
        if len(head) == _HEAD_DOCUMENTS or size > MAX_DOCUMENT:
            break
    return input_format, chain(head, documents)


def _lines_of(documents: Iterator[_Document], failures: list[InputError]) -> Iterator[Any]:
    """Yield the lines of a session; keep an error in reading them, which is none of the converter."""
    try:
        for document in documents:
            if isinstance(document.value, ConversionError):
                yield document.text.decode(errors="replace")  # one that is not JSON is a loss of its session
            else:
                yield from _each(document.value)
    except InputError as error:
        failures.append(error)


def _each(value: Any) -> list[Any]:
    """Return the items of a list, which may be the whole of a file that has no other line."""
    return value if isinstance(value, list) else [value]


def _convert_fragments(
    name: str, input_format: InputFormat, documents: Iterable[_Document], options: Options
) -> Iterator[LocatedConversion]:
    """Convert lines that together form one document."""
    values = []
    for document in documents:
        if isinstance(document.value, ConversionError):
            yield document.location(name), document.value
        elif input_format.fits(document.value):
            values += _each(document.value)
        else:
            yield (
                document.location(name),
                ConversionError(f"not {input_format.name}, unlike the lines before it"),
            )
    for outcome in convert(values, input_format.name, options):
        yield name, outcome


def _documents(name: str, unpacked: Lines, *, binary: bool) -> Iterator[_Document]:
    """Yield the JSON documents of a file: each line, or the whole file if its first line is not JSON.

    ``binary``: whether content that does not start like JSON is protobuf.
    """
    lines = iter(unpacked)
    start = next(lines, b"")
    lines = chain([start], lines)
    if unread := unsupported_beginning(start):
        yield _Document(None, UnreadError(unread))
        return
    if start.startswith(b"PK\x03\x04"):
        yield from _of_archive(unpacked.bounded(lines, len))
        return
    if binary and start and not start.lstrip().startswith((b"{", b"[")):
        try:
            exports: Any = read_exports(unpacked.joined(lines))
        except ConversionError as problem:
            exports = problem
        yield _Document(None, exports)
        return
    filled = _filled(lines)
    number, first = next(filled, (1, b""))
    parsed = _parsed(first)
    if isinstance(parsed, ConversionError):
        text = unpacked.joined(chain([first], lines))
        whole = _parsed(text)
        if not isinstance(whole, ConversionError):
            yield _Document(None, whole)
            return
        starts = (line for line in BytesIO(text) if line.lstrip().startswith((b"{", b"[")))
        if all(isinstance(_parsed(line), ConversionError) for line in starts):
            unread = unsupported_beginning(first) or unsupported_name(name)
            error = UnreadError(unread) if unread else whole
            yield from _indented(_filled(BytesIO(text), number)) or [_Document(None, error)]
            return
        filled = _filled(BytesIO(text), number)
        next(filled)
    yield _Document(number, parsed, text=first)
    for number, line in filled:
        yield _Document(number, _parsed(line), text=line)


def _filled(lines: Iterable[bytes], start: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, each with its number."""
    return ((number, line) for number, line in enumerate(lines, start) if line.strip())


def _indented(lines: Iterator[tuple[int, bytes]]) -> list[_Document]:
    """Return documents on several lines each, as tracers print spans; nothing if one is broken."""
    documents, text, start = list[_Document](), bytearray(), 0
    for number, line in lines:
        start = start if text else number
        text += line
        if line.rstrip() in (b"}", b"]"):
            documents.append(_Document(start, _parsed(bytes(text))))
            text.clear()
        if documents and isinstance(documents[-1].value, ConversionError):
            return []
    return [] if text else documents


def _of_archive(lines: Iterable[bytes]) -> Iterator[_Document]:
    """Yield Inspect's log in a zip archive, a document for each sample."""
    with SpooledTemporaryFile(max_size=_MAX_MEMORY) as file:
        file.writelines(lines)
        size = file.tell()
        try:
            with ZipFile(file) as archive:
                members = {entry.filename: entry for entry in archive.infolist()}
                if sum(entry.compress_size for entry in members.values()) > size:
                    raise BadZipFile("its members overlap")
                header = next((name for name in _HEADERS if name in members), None)
                log = {} if header is None else _member(archive, members[header])
                if not any(name.startswith(_SAMPLES) for name in members):
                    log = UnreadError(ARCHIVE)
                if not isinstance(log, dict):
                    yield _Document(None, log, header)
                    return
                for name, member in members.items():
                    if name.startswith(_SAMPLES):
                        sample = _member(archive, member)
                        failed = isinstance(sample, ConversionError)
                        yield _Document(None, sample if failed else {**log, "samples": [sample]}, name)
        except UNPACKING_ERRORS as error:
            yield _Document(None, ConversionError(f"not a whole zip archive: {error}"))


def _member(archive: ZipFile, member: ZipInfo) -> Any:
    try:
        text = read_member(archive, member)
        if len(text) > MAX_DOCUMENT:
            return ConversionError(f"unpacks to more than {MAX_DOCUMENT // 2**20} MiB")
        return _parsed(text)
    except UNPACKING_ERRORS as error:
        return ConversionError(f"cannot be unpacked: {error}")


def _parsed(text: bytes) -> Any:
    """Parse a JSON document; return an error if that fails."""
    if not text.strip():
        return UnreadError("empty")
    containers = text.count(b"[") + text.count(b"{")  # at most
    if containers > MAX_CONTAINERS:
        containers = sum(1 for found in _OUTSIDE_TEXTS.finditer(text) if found[1])
    if containers > MAX_CONTAINERS:
        return ConversionError(f"has more than {MAX_CONTAINERS:,} objects and lists")
    try:
        return json.loads(text, parse_constant=str)  # traces have no NaN
    except RecursionError:
        return ConversionError("nested too deeply")
    except UnicodeDecodeError:
        return UnreadError("not JSON: no text in UTF-8; protobuf needs --from otlp")
    except ValueError as error:
        return UnreadError(f"not JSON: {error}")


def read_domains(path: Path) -> dict[str, str]:
    """Read a domain map: a TOML file with lines ``name = "domain"`` for agents, services or projects.

    Raises:
        InputError: the file is invalid.
    """
    try:
        return TypeAdapter(dict[str, str]).validate_python(
            tomllib.loads(path.read_text("utf-8-sig")), strict=True
        )
    except (ValueError, RecursionError, OSError) as error:
        raise InputError(
            f'{path}: not a TOML file with lines such as helm_agent = "code": {_first(error)}'
        ) from error


def read_outcomes(path: Path) -> dict[str, RunOutcome]:
    """Read a file of outcomes, one ``{"id": …, "success": …, "confidence": …, "reward": …}`` per line.

    A reward judges the run unless ``success`` does; see :class:`RunOutcome`.

    Raises:
        InputError: a line is invalid.
    """
    outcomes = {}
    with file_errors(path, "read"):
        content = path.read_bytes()
    for number, line in enumerate(without_mark(content.splitlines()), start=1):
        if not line.strip():
            continue
        try:
            outcome = _Outcome.model_validate_json(line)
        except ValidationError as error:
            accepted = '{"id": "…", "success": true, "confidence": 0.8}'
            raise InputError(
                f"{path}:{number}: not an outcome such as {accepted}: {_first(error)}"
            ) from error
        rewards = [] if outcome.reward is None else [Reward("reward", outcome.reward)]
        judged = RunOutcome(outcome.success, outcome.confidence)
        outcomes[outcome.id] = judged.over(RunOutcome.graded(rewards))
    return outcomes


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors(include_url=False)[0]
    return ": ".join([*(str(step) for step in problem["loc"]), problem["msg"]])
