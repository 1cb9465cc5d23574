"""URLs for messages: without the secrets that they may contain."""

from __future__ import annotations

import re

HIDDEN = "***"
"""What stands in place of a secret."""


def without_secrets(url: str) -> str:
    """Return a URL, or servers with ports, without user, password, query and fragment.

    What is written wrongly, such as a password with an unescaped slash, is hidden, too.
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    before, at, after = rest.rpartition("@")
    if at and re.search(r"[?#]", before):  # a password, or a query with an @: nobody can tell
        return f"{scheme}{separator}{HIDDEN}"
    if at and ("/" not in before or ":" in before.partition("/")[0]):
        rest = f"{HIDDEN}@{after}"
    return scheme + separator + re.sub(r"[?#].*", f"?{HIDDEN}", rest, flags=re.DOTALL)
