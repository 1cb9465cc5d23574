"""The site of the documents: built without a warning, read and searched in a browser, without a network."""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.async_api import expect
from yarl import URL

from generator.build import build
from support.accessibility import COLOURS, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PAGES = ["index.html", "curators/threshold.html", "reference/settings.html"]
"""Pages with the most kinds of content."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments):
        """Requests are no output of a test."""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder of the site."""
    return build(tmp_path_factory.mktemp("docs"))


@pytest.fixture(scope="module")
def site(built):
    """Serve the site; return its address."""
    handler = functools.partial(Quiet, directory=built)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield URL.build(scheme="http", host="127.0.0.1", port=server.server_port)
        server.shutdown()
        thread.join()


def errors(visited):
    """Chromium's remark on the field for searches is none."""
    return [complaint for complaint in visited.complaints if not complaint.startswith("info: Autofocus")]


@pytest.mark.parametrize(
    ("words", "address"),
    [("KpDrift", "operators/runbook.html"), ("in_flight_records", "reference/settings.html")],
)
async def test_a_page_is_found_by_search(site, visit, words, address):
    """A page that people wrote, and one that is generated from the code."""
    visited = await visit(str(site / "index.html"))

    await visited.page.keyboard.press("/")
    await visited.page.get_by_role("combobox", name="Search").fill(words)
    await visited.page.locator(f"a[role=option][href*='{address}']").first.click()
    await visited.page.wait_for_url(f"**/{address}**")

    await expect(visited.page.get_by_role("heading", name=words)).to_be_in_viewport()
    assert visited.asked == {site.authority}
    assert not errors(visited)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_fits_a_phone_and_is_accessible_in_both_colours(site, visit, path):
    """Other pages look like these; tests/documents compares what they say."""
    visited = await visit(str(site / path), color_scheme="light")
    page = visited.page

    assert await serious_findings(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await serious_findings(page, COLOURS) == []
    await page.set_viewport_size({"width": 390, "height": 900})
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert visited.asked == {site.authority}
    assert not errors(visited)
