"""The formats that are converted, and where they come from, as their docstrings say."""

from __future__ import annotations

import inspect
import re

import knowledgepulse_convert
from generator import markdown
from knowledgepulse_convert import INPUT_FORMATS, InputFormat

_PART = re.compile(r"^(Source|Compared with): (.*?)\.$(?=\n\S|\n*\Z)", re.MULTILINE | re.DOTALL)


def table() -> str:
    """Return the table of the formats that users choose from."""
    rows = []
    for name in sorted(INPUT_FORMATS):
        own = f"from_{name}"
        function = own if hasattr(knowledgepulse_convert, own) else "convert"
        rows.append(f"| `{name}` | `{function}` | {parts_of(INPUT_FORMATS[name])['Accepts']} |")
    return markdown.table("| `--from` | Python | accepts |", rows)


def recordings() -> str:
    """Return the list of the files of recorded conversions."""
    rows = []
    for name in sorted(INPUT_FORMATS):
        parts = parts_of(INPUT_FORMATS[name])
        rows.append(f"| `{name}.jsonl` | {parts['Source']} | {parts['Compared with']} |")
    return markdown.table("| file | where the format is published | compared with |", rows)


def parts_of(input_format: InputFormat) -> dict[str, str]:
    """Return what a format's docstring says, as Markdown, by the words before the colons."""
    text = inspect.cleandoc(input_format.text or "").replace("``", "`")
    parts = {"Accepts": input_format.accepts, **dict(_PART.findall(text))}
    told = {name: " ".join(said.split()).replace("|", "\\|") for name, said in parts.items()}
    return {
        name: said if said.startswith("http") else said[:1].upper() + said[1:] for name, said in told.items()
    }
