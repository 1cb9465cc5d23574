"""The status page, who may see content, and headers that keep texts from becoming markup."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from ipaddress import ip_address

from aiohttp import HttpVersion11

from knowledgepulse_worker.http.parts import hashes_of, page_of
from knowledgepulse_worker.policy import ROUTES
from knowledgepulse_worker.settings import WebSettings

RESTRICTIONS = {
    # Pages from other origins in the same browser must learn nothing.
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

DATA_HEADERS = {
    **RESTRICTIONS,
    "Content-Type": "application/json",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


TEXT_PAGE_HEADERS = {**DATA_HEADERS, "Content-Type": "text/html; charset=utf-8"}
"""Headers of a page without a style or a script."""


def page_headers(page: bytes) -> dict[str, str]:
    """Return headers that restrict a page to its only script and its only style."""
    own = hashes_of(page)
    policy = [
        "default-src 'none'",
        f"script-src '{own['script']}'",
        f"style-src '{own['style']}'",
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
        **RESTRICTIONS,
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": "; ".join(policy),
        "Cross-Origin-Opener-Policy": "same-origin",
    }


_ROUTES = json.dumps([asdict(route) for route in ROUTES.values()]).encode()
PAGE = page_of("knowledgepulse_worker.http", "status.html").replace(
    b"const ROUTES = [];", b"const ROUTES = %s;" % _ROUTES
)
"""The status page, which knows the routes and asks for its data."""

PAGE_HEADERS = page_headers(PAGE)

_OF_A_BROWSER = {
    *("accept", "accept-encoding", "accept-language", "cache-control", "connection", "cookie", "dnt", "host"),
    *(
        "if-modified-since",
        "if-none-match",
        "keep-alive",
        "origin",
        "pragma",
        "priority",
        "purpose",
        "referer",
    ),
    *("save-data", "te", "upgrade-insecure-requests", "user-agent"),
    "x-prometheus-scrape-timeout-seconds",
}
"""What browsers, curl and Prometheus send by themselves, besides Fetch Metadata and client hints."""

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\s]+)(:(?P<port>\d{1,5}))?", re.ASCII)
"""A ``Host`` header (RFC 9110, section 7.2)."""


def shows_content(
    web: WebSettings, request: Mapping[str, str], version: tuple[int, int] = HttpVersion11
) -> bool:
    """Return whether a request may see trace content.

    If ``web.show_content`` is not set, content is shown only on loopback: both the listening address and the
    request's ``Host`` must be loopback. The latter excludes sites whose own name resolves to loopback. A
    proxy on this machine passes on requests of others. Most add a header, and no list of their names is ever
    whole, so a request with any header that neither browsers nor Prometheus send is excluded. So is HTTP/1.0:
    no browser speaks it, but nginx does, without such headers, unless it is configured otherwise.

    Args:
        web: the settings.
        request: the request's headers.
        version: its version of HTTP.
    """
    if web.show_content is not None:
        return web.show_content
    is_passed_on = version < HttpVersion11 or not all(map(_is_of_a_browser, request))
    return not is_passed_on and _is_loopback(web.host) and _is_loopback(_host(request.get("Host", "")))


def _is_of_a_browser(name: str) -> bool:
    return name.lower() in _OF_A_BROWSER or name.lower().startswith("sec-")


def _host(header: str) -> str:
    """Return the host of a ``Host`` header without the port; empty if the header is malformed."""
    found = _HOST.fullmatch(header)
    return found["host"].strip("[]") if found and int(found["port"] or 0) < 65536 else ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
