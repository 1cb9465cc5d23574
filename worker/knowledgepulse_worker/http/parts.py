"""What pages share: their style, and the script that shows texts, tables and histograms."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from importlib import resources

_PARTS = resources.files(__package__)


def page_of(package: str, name: str) -> bytes:
    """Return a page of a package, with the shared style and script in the places that it names."""
    page = resources.files(package).joinpath(name).read_bytes()
    for place, part in ((b"/* parts.css */\n", "parts.css"), (b"// parts.js\n", "parts.js")):
        page = page.replace(place, _PARTS.joinpath(part).read_bytes())
    return page


def hashes_of(page: bytes) -> dict[str, str]:
    """Return the hashes of a page's only script and its only style, as a Content-Security-Policy has them."""
    return {
        tag.decode(): f"sha256-{b64encode(sha256(part).digest()).decode()}"
        for tag, part in re.findall(rb"<(script|style)>(.*?)</\1>", page, re.DOTALL)
    }
