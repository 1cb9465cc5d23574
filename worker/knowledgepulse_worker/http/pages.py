"""The status page, who may see content, and headers that keep texts from becoming markup."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from importlib import resources
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import HttpVersion11

from knowledgepulse_worker.policy import ROUTES
from knowledgepulse_worker.settings import WebSettings

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


TEXT_PAGE_HEADERS = {**DATA_HEADERS, "Content-Type": "text/html; charset=utf-8"}
"""Headers of a page without a style or a script."""


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


_ROUTES = json.dumps([asdict(route) for route in ROUTES.values()]).encode()
PAGE = (
    resources.files("knowledgepulse_worker.http")
    .joinpath("status.html")
    .read_bytes()
    .replace(b"const ROUTES = [];", b"const ROUTES = %s;" % _ROUTES)
)
"""The status page, which knows the routes and asks for its data."""

PAGE_HEADERS = page_headers(PAGE)

_OF_A_PROXY = re.compile(
    r"(x-)?forwarded(-.*)?|via|.*-ip|(x-)?remote-.*|x-(original|auth|webauth|nginx|envoy|amzn)-.*|cf-.*|cdn-loop",
    re.IGNORECASE,
)
"""The headers of proxies (RFC 7239, RFC 8586, RFC 9110) and their vendors, such as X-Real-IP and CF-Ray."""


def shows_content(
    web: WebSettings, request: Mapping[str, str], version: tuple[int, int] = HttpVersion11
) -> bool:
    """Return whether a request may see trace content.

    If ``web.show_content`` is not set, content is shown only on loopback: both the listening address and the
    request's ``Host`` must be loopback. The latter excludes sites whose own name resolves to loopback. A
    proxy on this machine passes on requests of others, so its headers exclude them, as does HTTP/1.0: no
    browser speaks it, but nginx does, without such headers, unless it is configured otherwise.

    Args:
        web: the settings.
        request: the request's headers.
        version: its version of HTTP.
    """
    if web.show_content is not None:
        return web.show_content
    is_passed_on = version < HttpVersion11 or any(_OF_A_PROXY.fullmatch(name) for name in request)
    return not is_passed_on and _is_loopback(web.host) and _is_loopback(_host(request.get("Host", "")))


def _host(header: str) -> str:
    """Return the host of a ``Host`` header without the port; empty if the header is malformed."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return ""
    is_plain = parts.netloc == header and "@" not in header
    return parts.hostname or "" if is_plain else ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
