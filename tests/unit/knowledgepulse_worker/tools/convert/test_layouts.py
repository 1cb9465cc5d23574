"""A document gives the same traces on one line, on many, and packed."""

import bz2
import gzip
import json
import lzma
import tempfile

import cramjam
import pytest

from knowledgepulse_convert import Conversion, Options, UnreadError
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.convert import unpacking
from knowledgepulse_worker.tools.convert.file_conversion import convert_lines
from support.conversions import FOLDER, read_cases
from support.memory import traced


def outcomes(case, text):
    """Return the traces and the losses, or the kind of the error, of each run in a file."""
    options = Options(**case.get("options", {}))
    lines = text.encode("utf-8", "surrogatepass").splitlines(keepends=True)
    converted = convert_lines("file", lines, case.get("from", "auto"), options)
    return [
        (outcome.trace, dict(outcome.losses.items())) if isinstance(outcome, Conversion) else type(outcome)
        for _, outcome in converted
    ]


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.jsonl")), ids=lambda file: file.stem)
def test_a_document_on_one_line_is_the_document_on_many(file):
    for case in read_cases(file):
        one, many = (json.dumps(case["document"], indent=indent) for indent in (None, 1))

        assert outcomes(case, one) == outcomes(case, many), case["name"]


def test_spans_on_many_lines_each_are_the_spans_on_a_line_each():
    """As OpenTelemetry's SDK prints them; a broken one is not skipped."""
    [case] = read_cases(FOLDER / "otel_sdk.jsonl")
    spans = [json.dumps(span, indent=4) for span in case["document"]]

    assert outcomes(case, "\n".join(spans)) == outcomes(case, json.dumps(case["document"]))
    assert outcomes(case, "\n".join([*spans, spans[0][:-2]])) == [UnreadError]


SESSION = [
    {"role": "user", "content": "Fix the tests"},
    {"role": "assistant", "content": "Done " * 5000},
]
TEXT = "".join(json.dumps(line) + "\n" for line in SESSION).encode()
PACKED = {
    "gzip": gzip.compress(TEXT[:50]) + gzip.compress(TEXT[50:]),
    "zstd": bytes(cramjam.zstd.compress(TEXT)),
    "bzip2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
}


def packed_lines(content):
    return content.splitlines(keepends=True)


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_a_compressed_file_is_read(packed):
    [(_, conversion)] = convert_lines("file", packed_lines(packed), "auto", Options())

    assert conversion.trace.steps[0].content == SESSION[1]["content"]


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_a_damaged_compressed_file_is_an_error_that_names_it(packed):
    with pytest.raises(InputError, match=r"^file: not a whole compressed file: "):
        list(convert_lines("file", packed_lines(packed[: len(packed) // 2]), "auto", Options()))


PACKERS = {
    "gzip": lambda text: gzip.compress(text, 1),
    "zstd": lambda text: bytes(cramjam.zstd.compress(text, 1)),
    "bzip2": bz2.compress,
    "xz": lambda text: lzma.compress(text, preset=0),
}
BOMBS = {
    "no line": bytes(2_000_000),
    "lines of nothing": b"x\n" * 1_000_000,
    "one document": b"[" + b"0," * 1_000_000 + b"0]",
    "a document on many lines": b"{\n" + b'"a": 0,\n' * 250_000,
    "an archive": b"PK\x03\x04" + bytes(2_000_000),
}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("bomb", BOMBS)
def test_what_unpacks_to_a_large_document_is_refused_and_kept_nowhere(monkeypatch, tmp_path, packer, bomb):
    """192 kB of zstd became 6.3 GB of disk, and 2.7 MB of gzip 9.2 GB of memory."""
    monkeypatch.setattr(unpacking, "MAX_DOCUMENT", 100_000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lines = packed_lines(PACKERS[packer](BOMBS[bomb]))
    too_large = pytest.raises(InputError, match=r"^file: unpacks to a document of more than 0\.095")
    with traced() as memory, too_large:
        list(convert_lines("file", lines, "auto", Options()))
    assert memory.peak < 1_500_000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("packer", PACKERS)
def test_lines_that_each_are_small_are_read_whatever_their_number(monkeypatch, packer):
    monkeypatch.setattr(unpacking, "MAX_DOCUMENT", 25_000)
    session = "".join(
        json.dumps(line) + "\n" for line in [SESSION[0], {**SESSION[1], "content": "Done"}] * 500
    )
    [(_, conversion)] = convert_lines(
        "file", packed_lines(PACKERS[packer](session.encode())), "auto", Options()
    )
    assert len(conversion.trace.steps) > 500


def test_a_file_that_is_not_compressed_has_no_bound(monkeypatch):
    monkeypatch.setattr(unpacking, "MAX_DOCUMENT", 100)
    [(_, conversion)] = convert_lines("file", packed_lines(TEXT), "auto", Options())
    assert conversion.trace.steps[0].content == SESSION[1]["content"]


def test_what_is_known_and_not_read_is_named_once():
    lines = [{"resourceMetrics": []}, {"resourceMetrics": []}, {"type": "completion"}]
    outcomes = list(convert_lines("file", [json.dumps(line).encode() for line in lines], "auto", Options()))

    assert [(where, str(outcome)) for where, outcome in outcomes] == [
        ("file:1", "OpenTelemetry's metrics hold no conversation; convert the agent's spans")
    ]
