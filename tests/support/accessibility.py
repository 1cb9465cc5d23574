"""Findings of axe-core, a checker of accessibility, on a page in a browser."""

from __future__ import annotations

from collections.abc import Sequence

from axe_playwright_python.async_playwright import DEFAULT_OPTIONS, Axe
from playwright.async_api import Page

_SERIOUS = {"serious", "critical"}

COLOURS = ("color-contrast", "link-in-text-block")
"""The rules about colours, the only ones whose findings change with the colour scheme."""


async def serious_findings(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """Return what users with a disability would stumble over: the rule, its explanation and the elements.

    Args:
        page: the page.
        rules: the rules to check; by default, all.
    """
    found = await Axe().run(page, options=DEFAULT_OPTIONS | ({"runOnly": list(rules)} if rules else {}))
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'][:200] for node in violation['nodes']]}"
        for violation in found.response["violations"]
        if violation["impact"] in _SERIOUS
    ]
