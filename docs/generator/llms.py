"""``llms.txt``: the site for programs that read text, by https://llmstxt.org."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START = "Start"
"""The section of the pages that the navigation has outside of its sections."""

_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_OTHER_THAN_TEXT = re.compile(r"[#|<!>\-:]|\* ")
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)")
_SENTENCE = re.compile(r".+?[.?](?=\s+\S|$)")


class NoSentenceError(Exception):
    """A page of the navigation has no title, or no sentence."""


def llms_text(folder: Path) -> str:
    """Return the file of a staged site: its name and purpose, then each page of the navigation.

    Raises:
        NoSentenceError: a page has nothing but tables and code.
    """
    project = tomllib.loads((folder / "zensical.toml").read_text(encoding="utf-8"))["project"]
    pages = folder / project["docs_dir"]
    parts = [f"# {project['site_name']}", f"> {project['site_description']}."]
    for section, paths in _sections(project["nav"]):
        parts += [f"## {section}", "\n".join(_line(pages, path) for path in paths)]
    return "\n\n".join(parts) + "\n"


def _sections(nav: list[Any]) -> Iterator[tuple[str, list[str]]]:
    yield START, [entry for entry in nav if isinstance(entry, str)]
    for entry in nav:
        if isinstance(entry, dict):
            yield from entry.items()


def _line(pages: Path, path: str) -> str:
    page = _BLOCK.sub("", (pages / path).read_text(encoding="utf-8"))
    title, sentence = _TITLE.search(page), next(_sentences(page), None)
    if title is None or sentence is None:
        raise NoSentenceError(f"{path}: has no title, or no sentence that says what it is about")
    return f"- [{title[1]}]({path.removesuffix('.md')}.html): {sentence}"


def _sentences(page: str) -> Iterator[str]:
    """Yield the first sentence of each paragraph, without markup."""
    for paragraph in re.split(r"\n\s*\n", page):
        if not _OTHER_THAN_TEXT.match(paragraph):
            text = _LINK.sub(r"\1", " ".join(paragraph.split())).replace("*", "")
            if found := _SENTENCE.match(text):
                yield found[0]
