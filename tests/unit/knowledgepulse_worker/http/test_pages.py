"""The status page, who may see content, and the headers of responses."""

import re
from base64 import b64encode
from hashlib import sha256

import pytest
from aiohttp import HttpVersion10, HttpVersion11

from knowledgepulse_worker.http.pages import DATA_HEADERS, PAGE, PAGE_HEADERS, shows_content
from knowledgepulse_worker.settings import WebSettings


@pytest.mark.parametrize(
    ("show", "host", "asked", "shown"),
    [
        (None, "127.0.0.1", "127.0.0.1", True),
        (None, "127.0.0.1", "localhost", True),
        (None, "127.0.0.1", "127.0.0.1:6066", True),
        (None, "::1", "[::1]:6066", True),
        (None, "localhost", "LOCALHOST", True),
        (None, "127.0.0.1", "rebound.example", False),  # a name that somebody points at loopback
        (None, "127.0.0.1", "", False),
        (None, "127.0.0.1", "localhost:evil", False),
        (None, "127.0.0.1", "localhost:99999", False),
        (None, "127.0.0.1", "rebound.example@localhost", False),
        (None, "127.0.0.1", "localhost/", False),
        (None, "127.0.0.1", "[::1", False),
        (None, "127.0.0.1", "[::1]junk", False),
        (None, "127.0.0.1", "[::1]:", False),
        (None, "127.0.0.1", "[localhost]", False),
        (None, "127.0.0.1", "::1", False),
        (None, "127.0.0.1", "localhost\n", False),
        (None, "127.0.0.1", "\u0661\u0662\u0667.0.0.1", False),
        (None, "127.0.0.1", "10.0.0.1", False),
        (None, "0.0.0.0", "127.0.0.1", False),
        (None, "worker.internal", "localhost", False),
        (True, "0.0.0.0", "worker.internal", True),
        (False, "127.0.0.1", "127.0.0.1", False),
    ],
)
def test_content_is_shown_on_loopback_only_by_default(show, host, asked, shown):
    assert shows_content(WebSettings(host=host, show_content=show), {"Host": asked}) is shown


@pytest.mark.parametrize(
    "name",
    [
        *("X-Forwarded-For", "x-forwarded-host", "X-Forwarded-Proto", "Forwarded", "Via", "X-Real-IP"),
        *("X-Original-Forwarded-For", "X-Original-URL", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP"),
        *("Remote-User", "X-WEBAUTH-USER", "X-Auth-Request-User", "CF-Ray", "CDN-Loop", "X-Amzn-Trace-Id"),
        *(
            "Fastly-Client",
            "Akamai-Origin-Hop",
            "Surrogate-Capability",
            "X-Varnish",
            "X-Cluster-Client",
            "Max-Forwards",
        ),
        *("X-Request-Id", "traceparent", "Authorization", "Ssl-Client-Cert", "Incap-Client", "of-nobody-yet"),
    ],
)
def test_a_request_that_a_proxy_on_this_machine_passed_on_is_not_shown_content(name):
    """The proxy connects from loopback, and may name it in `Host`, for anybody."""
    request = {"Host": "localhost", name: "x"}

    assert not shows_content(WebSettings(), request)
    assert shows_content(WebSettings(show_content=True), request)


ALL = "Host Connection User-Agent Accept Accept-Encoding Accept-Language Cookie Referer Cache-Control Pragma"
FETCH = "Upgrade-Insecure-Requests Sec-Fetch-Site Sec-Fetch-Mode Sec-Fetch-User Sec-Fetch-Dest"
BROWSERS = {
    "curl": "Host User-Agent Accept",
    "Chromium": f"{ALL} {FETCH} sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform If-None-Match Purpose",
    "Firefox": f"{ALL} {FETCH} DNT Sec-GPC Priority TE",
    "Prometheus": "Host User-Agent Accept Accept-Encoding X-Prometheus-Scrape-Timeout-Seconds",
}
"""The names of what each sends by itself."""


@pytest.mark.parametrize("browser", BROWSERS)
def test_what_browsers_curl_and_prometheus_send_by_themselves_hides_nothing(browser):
    request = dict.fromkeys(BROWSERS[browser].split(), "x") | {"Host": "localhost:6066"}

    assert shows_content(WebSettings(), request)


def test_a_request_in_http_1_0_is_not_shown_content_as_nginx_passes_it_on_without_a_header():
    request = {"Host": "127.0.0.1:6066", "Connection": "close"}

    assert not shows_content(WebSettings(), request, HttpVersion10)
    assert shows_content(WebSettings(show_content=True), request, HttpVersion10)
    assert shows_content(WebSettings(), request, HttpVersion11)


@pytest.mark.parametrize("tag", ["script", "style"])
def test_the_csp_allows_exactly_the_pages_script_and_style(tag):
    parts = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>".encode(), PAGE, re.DOTALL)
    directive = re.search(rf"{tag}-src ([^;]*)", PAGE_HEADERS["Content-Security-Policy"])

    digests = [f"'sha256-{b64encode(sha256(part).digest()).decode()}'" for part in parts]
    assert directive is not None
    assert directive[1].split() == digests
    assert len(parts) == 1


@pytest.mark.parametrize("headers", [PAGE_HEADERS, DATA_HEADERS])
def test_responses_have_safe_headers(headers):
    policy = headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
