"""Response headers that keep pages from other origins and texts from becoming markup."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

_SAFE = {
    # Pages from other origins in the same browser must learn nothing.
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

DATA_HEADERS = {
    **_SAFE,
    "Content-Type": "application/json",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def page_headers(page: bytes) -> dict[str, str]:
    """Return headers that restrict a page to its only script and its only style."""
    own = {
        tag: b64encode(sha256(part).digest()).decode()
        for tag, part in re.findall(rb"<(script|style)>(.*?)</\1>", page, re.DOTALL)
    }
    policy = [
        "default-src 'none'",
        f"script-src 'sha256-{own[b'script']}'",
        f"style-src 'sha256-{own[b'style']}'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Strings cannot become markup, not even by mistake.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return {
        **_SAFE,
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": "; ".join(policy),
        "Cross-Origin-Opener-Policy": "same-origin",
    }
