"""Text of others in messages, without secrets and on one line."""

from __future__ import annotations

import re

HIDDEN = "***"
"""The replacement for a secret."""


def without_secrets(url: str) -> str:
    """Return a URL, or servers with ports, without user, password, query and fragment.

    Secrets in a malformed URL, such as a password with an unescaped slash, are hidden, too.
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    before, at, after = rest.rpartition("@")
    if at and re.search(r"[?#]", before):  # either a password, or a query with an @: hide both
        return f"{scheme}{separator}{HIDDEN}"
    if at and ("/" not in before or ":" in before.partition("/")[0]):
        rest = f"{HIDDEN}@{after}"
    return scheme + separator + re.sub(r"[?#].*", f"?{HIDDEN}", rest, flags=re.DOTALL)


def printable(text: str, keep: str = "") -> str:
    """Escape all unprintable characters except those in ``keep``."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text
    )
