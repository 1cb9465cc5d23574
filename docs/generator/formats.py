"""The formats that are converted, and where they come from, as their docstrings say."""

from __future__ import annotations

import inspect
import re

import knowledgepulse_convert
from knowledgepulse_convert import INPUT_FORMATS, InputFormat

_PART = re.compile(r"^(Source|Compared with): (.*?)\.$(?=\n\S|\n*\Z)", re.MULTILINE | re.DOTALL)


def table() -> str:
    """Return the table of the formats that users choose from."""
    rows = [
        f"| `{name}` | `{_function(name)}` | {parts_of(INPUT_FORMATS[name])['Accepts']} |"
        for name in sorted(INPUT_FORMATS)
    ]
    return "\n".join(["| `--from` | Python | accepts |", "|---|---|---|", *rows])


def recordings() -> str:
    """Return the list of the files of recorded conversions."""
    rows = []
    for name in sorted(INPUT_FORMATS):
        parts = parts_of(INPUT_FORMATS[name])
        rows.append(f"| `{name}.jsonl` | {parts['Source']} | {parts['Compared with']} |")
    return "\n".join(["| file | where the format is published | compared with |", "|---|---|---|", *rows])


def parts_of(input_format: InputFormat) -> dict[str, str]:
    """Return what a format's docstring says, as Markdown, by the words before the colons."""
    text = inspect.cleandoc(input_format.text or "").replace("``", "`")
    parts = {"Accepts": input_format.accepts, **dict(_PART.findall(text))}
    return {name: _capital(" ".join(said.split())).replace("|", "\\|") for name, said in parts.items()}


def _function(name: str) -> str:
    own = f"from_{name}"
    return own if hasattr(knowledgepulse_convert, own) else "convert"


def _capital(text: str) -> str:
    return text if text.startswith("http") else text[:1].upper() + text[1:]
