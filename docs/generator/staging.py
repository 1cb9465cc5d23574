"""The site's source: all documents, and the pages that are generated from the code."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from os.path import normpath, relpath
from pathlib import Path

from generator import python

ROOT = Path(__file__).parents[2]
PART = re.compile(r"^<!-- generated: (\w+) -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
"""A generated part of a document: its name and its text, as `make tables` has written it."""

PROJECT = "project"
"""The folder of the documents from outside docs/, under their paths in the repository."""

_FOLDERS = ("deploy", "examples", "schemas", "tests", "worker")
_PLACES = {"README.md": "index.md", "docs/README.md": "documentation.md"}
_FENCE = r"^```(?P<tag>\w+)(?: (?P<argument>[^\n]+))?\n(?P<text>.*?)^```$"
_LABEL = r"(?P<picture>!?)\[(?P<label>(?:[^\[\]]|\[[^\]]*\])*)\]"
_LINK = rf"{_LABEL}\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
_FENCE_OR_LINK = re.compile(f"{_FENCE}|{_LINK}", re.MULTILINE | re.DOTALL)


def stage(folder: Path) -> None:
    """Write the site's source and configuration to a folder, in place of what it has."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    for document in documents():
        place = pages / page_of(document)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / document).read_text(encoding="utf-8")
        text = _FENCE_OR_LINK.sub(lambda found, document=document: _staged(found, document, pages), text)
        # Without the marks of generated parts; the Python API is that of mkdocstrings' directives.
        text = PART.sub(lambda part: python.directives() if part[1] == "python" else part[2], text)
        place.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs/images", pages / "images")
    shutil.copytree(ROOT / "docs/theme", pages / "theme")
    shutil.copytree(ROOT / "docs/templates", folder / "templates")
    shutil.copy(ROOT / "docs/zensical.toml", folder)


def documents() -> Iterator[str]:
    """Yield the paths of all documents."""
    yield from (path.name for path in ROOT.glob("*.md"))
    for folder in ("docs", *_FOLDERS):
        yield from (str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.md"))


def page_of(document: str) -> str:
    """Return where the site has a document, or another file; the README is its home."""
    if document in _PLACES:
        return _PLACES[document]
    path = document.removeprefix("docs/") if document.startswith("docs/") else f"{PROJECT}/{document}"
    return re.sub(r"(^|/)README\.md$", r"\1index.md", path)


def _staged(found: re.Match[str], document: str, pages: Path) -> str:
    return _fence(found) if found["tag"] else _link(found, document, pages)


def _fence(found: re.Match[str]) -> str:
    """Return a block as the site's Markdown has it: a file's name is its title, and output is plain text."""
    tag, argument = found["tag"], found["argument"]
    if tag == "output":
        tag, argument = "text", None
    title = f' title="{argument}"' if argument else ""
    return f"```{tag}{title}\n{found['text']}```"


def _link(found: re.Match[str], document: str, pages: Path) -> str:
    """Return a link as the site has it: to a page, to a copied file, or its text alone."""
    target = normpath(Path(document).parent / found["path"])
    # The worker's pages are none of the site's, and the site takes no hidden files.
    if (ROOT / target).is_dir() or target.endswith(".html") or target.startswith("."):
        return found["label"]
    if not target.endswith(".md") and not target.startswith("docs/images/"):
        copied = pages / page_of(target)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / target, copied)
    label = _FENCE_OR_LINK.sub(lambda inner: _staged(inner, document, pages), found["label"])
    relative = relpath(page_of(target), Path(page_of(document)).parent)
    return f"{found['picture']}[{label}]({relative}{found['anchor'] or ''})"
