"""The site of the documents: built without a warning, read and searched in a browser, without a network."""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.async_api import expect
from yarl import URL

from generator.build import build
from generator.versions import add_version
from support.accessibility import COLOURS, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

OLDER, NEWEST = "0.9.0", "0.10.0"
PAGES = ["index.html", "curators/threshold.html", "reference/metrics.html"]
"""Pages with the most kinds of content. The longest have no other kind, and take the checker 20 s each."""
WIDEST = ["reference/settings.html", "reference/conversion.html"]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments):
        """Requests are no output of a test."""


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Return the folder of a site with two versions, which differ in nothing else."""
    built, folder = build(tmp_path_factory.mktemp("docs")), tmp_path_factory.mktemp("site")
    for version in (NEWEST, OLDER):
        add_version(built, folder, version)
    return folder


@pytest.fixture(scope="module")
def root(versions):
    """Serve the site; return its address."""
    handler = functools.partial(Quiet, directory=versions)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield URL.build(scheme="http", host="127.0.0.1", port=server.server_port)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def site(root):
    """Return the address of the older version."""
    return root / OLDER


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


async def test_the_menu_of_versions_leads_to_the_newest(root, site, visit):
    visited = await visit(str(site / "score.html"))
    page = visited.page

    await page.locator(".md-version__current").focus()
    assert await page.locator(".md-version__link").all_inner_texts() == [NEWEST, OLDER]
    await page.get_by_role("link", name=NEWEST, exact=True).click()
    await page.wait_for_url(f"{root / NEWEST}/")
    await page.goto(str(root))
    await page.wait_for_url(str(root / NEWEST / "index.html"))

    assert visited.asked == {site.authority}
    assert not errors(visited)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_accessible_in_both_colours(site, visit, path):
    """Other pages look like these; tests/documents compares what they say."""
    visited = await visit(str(site / path), color_scheme="light")
    page = visited.page

    assert await serious_findings(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await serious_findings(page, COLOURS) == []
    assert visited.asked == {site.authority}
    assert not errors(visited)


async def test_pages_fit_a_phone(site, visit):
    visited = await visit(str(site / "index.html"), viewport={"width": 390, "height": 900})

    for path in PAGES + WIDEST:
        await visited.page.goto(str(site / path))
        await visited.page.locator("main").wait_for()
        width = await visited.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert width <= 0, path
    assert not errors(visited)
