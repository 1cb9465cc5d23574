"""Files that hold no JSON and are known: what they are, and the way in."""

from __future__ import annotations

from pathlib import PurePath

_TO_JSON = ", which is not read; write its rows as JSON lines, one object for each"
_EXPORT = ", which is not read; let its program export the conversation as JSON"
_UNPACK = ", which is not read; unpack it, and convert the files in it"
_OF_CALLS = ", which is not read; convert the messages of its model calls, or their spans"
_PICTURE = "a picture, which holds no messages"
_UTF_16 = "text in UTF-16; `iconv -f UTF-16 -t UTF-8` makes UTF-8 of it, which is read"

ARCHIVE = f"a zip archive without an Inspect log{_UNPACK}"

_BEGINNINGS = {
    b"SQLite format 3": ("a database of SQLite, which is read from a file only"),
    b"PAR1": f"a Parquet file{_TO_JSON}",
    b"ARROW1": f"an Arrow file{_TO_JSON}",
    b"\x04\x22\x4d\x18": "compressed by lz4, which is not read; unpack it, or compress it by gzip or zstd",
    b"7z\xbc\xaf": f"an archive{_UNPACK}",
    b"%PDF": f"a PDF file{_EXPORT}",
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
    b"\x89PNG": _PICTURE,
    b"\xff\xd8\xff": _PICTURE,
    b"GIF8": _PICTURE,
    b"# aider chat": f"Aider's history in Markdown{_OF_CALLS}",
    b"TO LLM ": f"Aider's log of its model calls{_OF_CALLS}",
    b"<!": f"HTML{_EXPORT}",
    b"<html": f"HTML{_EXPORT}",
}
_TAR = slice(257, 262)
"""Where an archive of tar says that it is one."""
_ENDINGS = {
    ".csv": f"a CSV file{_TO_JSON}",
    ".tsv": f"a TSV file{_TO_JSON}",
    ".yaml": "YAML, which is not read; write it as JSON",
    ".yml": "YAML, which is not read; write it as JSON",
    ".md": f"Markdown{_EXPORT}",
}


def unsupported_beginning(first: bytes) -> str | None:
    """Return what a file is by its first bytes, and the way in; None if it may be read."""
    if first[_TAR] == b"ustar":
        return f"an archive of tar{_UNPACK}"
    return next((told for beginning, told in _BEGINNINGS.items() if first.startswith(beginning)), None)


def unsupported_name(name: str) -> str | None:
    """Return what a file that is no JSON is by its name, and the way in; None if that does not say."""
    endings = map(str.lower, PurePath(name).suffixes)  # of a compressed file, too: rows.csv.gz
    return next((_ENDINGS[ending] for ending in endings if ending in _ENDINGS), None)
