"""The site of the documents: built without a warning, read and searched in a browser, without a network."""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.async_api import expect
from yarl import URL

from generator.build import build
from support.accessibility import serious_findings

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
        thread = threading.Thread(target=server.serve_forever)
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


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("path", PAGES)
async def test_no_page_is_wider_than_the_screen(site, visit, path, width):
    visited = await visit(str(site / path), viewport={"width": width, "height": 900})

    assert await visited.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert visited.asked == {site.authority}
    assert not errors(visited)


async def test_every_page_is_accessible(built, site, visit):
    visited = await visit(str(site))

    found, looks = {}, set()
    for page in sorted(built.rglob("*.html")):
        path = str(page.relative_to(built))
        await visited.page.goto(str(site / path))
        await visited.page.locator("main").wait_for()
        found[path] = await serious_findings(visited.page, looks)
    assert len(found) > 20
    assert {path: findings for path, findings in found.items() if findings} == {}


@pytest.mark.parametrize(
    ("selector", "style", "rule"),
    [
        ("p", "color: #aaa; transition: none", "color-contrast"),
        ("p > a", "color: #333; text-decoration: none; transition: none", "link-in-text-block"),
    ],
)
async def test_colours_of_one_page_alone_are_checked(site, visit, selector, style, rule):
    """Of texts that look alike only the first is checked."""
    visited, looks = await visit(str(site / PAGES[0])), set()
    await serious_findings(visited.page, looks)
    await visited.page.goto(str(site / PAGES[1]))
    await visited.page.locator(f"main {selector}").first.evaluate(
        "(node, style) => node.style = style", style
    )

    [finding] = await serious_findings(visited.page, looks)
    assert finding.startswith(f"{rule}: ")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_accessible_in_dark_colours(site, visit, path):
    visited = await visit(str(site / path), color_scheme="dark")

    assert await serious_findings(visited.page, set()) == []
