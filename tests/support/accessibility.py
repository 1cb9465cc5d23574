"""Findings of axe-core, a checker of accessibility, on a page in a browser."""

from __future__ import annotations

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

_SERIOUS = {"serious", "critical"}


async def serious_findings(page: Page) -> list[str]:
    """Return what users with a disability would stumble over: the rule, its explanation and the elements."""
    found = await Axe().run(page)
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']]}"
        for one in found.response["violations"]
        if one["impact"] in _SERIOUS
    ]
