"""Files without an end, and documents that take many times their size in memory."""

import gzip
from pathlib import Path

import pytest
from rich.progress import Progress

from knowledgepulse_convert import AUTO, ConversionError, Options
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.convert import file_conversion, unpacking
from knowledgepulse_worker.tools.convert.file_conversion import convert_lines
from knowledgepulse_worker.tools.terminal import files, lines


def conversions(given):
    return [outcome for _, outcome in convert_lines("given", given, AUTO, Options())]


def test_a_device_without_an_end_is_refused(monkeypatch):
    """It has no line's end either, and would fill the memory."""
    monkeypatch.setattr(files, "MAX_LINE", 2**20)
    opened = files.opened(["/dev/zero"], Progress(disable=True))
    _, endless = next(opened)

    with pytest.raises(InputError, match=r"^/dev/zero: has a line or a document of more than 1 MiB$"):
        conversions(endless)


def test_a_device_without_an_end_is_refused_where_only_the_beginnings_of_lines_are_kept(monkeypatch):
    """As by `score` and `publish`, which read on for ever."""
    monkeypatch.setattr(files, "MAX_LINE", 2**20)

    with pytest.raises(InputError, match="has a line or a document of more than 1 MiB"):
        list(files.lines_of(["/dev/zero"], Progress(disable=True), 1000))


def test_a_device_without_an_end_is_refused_by_the_commands_on_scored_lines(monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 2**20)

    with pytest.raises(InputError, match="has a line or a document of more than 1 MiB"):
        list(lines.located_lines(Path("/dev/zero")))


@pytest.mark.parametrize("line", [b"no JSON\n", b"{\n", b'"a\n'])
def test_a_document_of_lines_without_an_end_is_refused(monkeypatch, line):
    monkeypatch.setattr(unpacking, "MAX_LINE", 1000)

    with pytest.raises(InputError, match="given: has a line or a document of more than"):
        conversions(line for _ in range(10_000))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_document_of_too_many_values_is_an_error_and_its_texts_do_not_count(monkeypatch, pack):
    monkeypatch.setattr(file_conversion, "MAX_CONTAINERS", 100)

    (crowded,) = conversions([pack(b'{"a": [' + b",".join([b"[]"] * 100) + b"]}")])
    (texts,) = conversions([pack(b'{"a": ["\\\\\\"' + b"[{" * 100 + b'"]}')])

    assert isinstance(crowded, ConversionError)
    assert str(crowded) == "has more than 100 objects and lists"
    assert "objects and lists" not in str(texts)
