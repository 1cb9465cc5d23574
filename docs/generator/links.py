"""Links of the built site."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINKING = {"a": "href", "img": "src", "link": "href", "script": "src"}


class _Page(HTMLParser):
    """What a page links to, and what can be linked to on it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect links and ids."""
        values = dict(attrs)
        if name := values.get("id"):
            self.anchors.add(name)
        if target := values.get(_LINKING.get(tag, "")):
            self.links.append((tag, target))


def broken_links(site: Path) -> list[str]:
    """Return the links that lead nowhere, and resources that a page would load from elsewhere."""
    pages = {path.resolve(): _Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    return [
        f"{path.relative_to(site.resolve())}: {problem}"
        for path, page in sorted(pages.items())
        for problem in _problems(path, page, pages)
    ]


def _problems(path: Path, page: _Page, pages: dict[Path, _Page]) -> Iterator[str]:
    for tag, target in page.links:
        url = urlsplit(target)
        if url.scheme or url.netloc:
            if tag != "a" and url.scheme != "data":
                yield f"is loaded from elsewhere: {target}"
            continue
        linked = (path.parent / unquote(url.path)).resolve() if url.path else path
        if linked.is_dir():
            linked /= "index.html"
        if not linked.exists():
            yield f"broken link: {target}"
        elif url.fragment and linked in pages and unquote(url.fragment) not in pages[linked].anchors:
            yield f"no such section: {target}"
