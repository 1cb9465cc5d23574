"""Findings of axe-core, a checker of accessibility, on a page in a browser."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.async_playwright import DEFAULT_OPTIONS, Axe
from playwright.async_api import Page

_SERIOUS = {"serious", "critical"}

_COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules about colours, which take most of axe's time: they look at the whole page for each text."""

_MARK_NEW_LOOKS = """known => {
  const styles = [
    "color", "backgroundColor", "backgroundImage", "opacity", "filter", "mixBlendMode", "textShadow",
    "display", "textDecorationLine", "fontSize", "fontWeight", "fontStyle",
    "borderBottom", "position", "visibility",
  ];
  const isText = node => node.nodeType === Node.TEXT_NODE && node.data.trim();
  const hasText = node => [...node.childNodes].some(isText);
  const look = node => {
    const computed = getComputedStyle(node);
    return [node.localName, node.className, hasText(node), ...styles.map(name => computed[name])].join(" ");
  };
  const paths = new Map([[null, ""]]);
  const path = node => {
    if (!paths.has(node)) paths.set(node, `${path(node.parentElement)} > ${look(node)}`);
    return paths.get(node);
  };
  const looks = new Set(known);
  for (const node of document.body.querySelectorAll("*")) {
    if (!hasText(node)) continue;
    if (looks.has(path(node))) continue;
    looks.add(path(node));
    node.setAttribute("data-new-look", "");
  }
  return [...looks].slice(known.length);
}"""
"""Mark a text of each look that is not known, and return these looks.

A look consists of the styles of a text and of all elements around it, with their names and classes.
"""


async def serious_findings(page: Page, looks: set[str] | None = None) -> list[str]:
    """Return what users with a disability would stumble over: the rule, its explanation and the elements.

    Args:
        page: the page.
        looks: looks of texts whose colours need no check, as another page has them, too; this page's are
            added. By default, the colours of every text are checked.
    """
    if looks is None:
        return await _findings(page)
    found = await _findings(page, rules={rule: {"enabled": False} for rule in _COLOURS})
    if new := await page.evaluate(_MARK_NEW_LOOKS, sorted(looks)):
        looks.update(new)
        found += await _findings(page, "[data-new-look]", runOnly=_COLOURS)
    return found


async def _findings(page: Page, elements: str | None = None, **options: Any) -> list[str]:
    found = await Axe().run(page, elements, DEFAULT_OPTIONS | options)
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']]}"
        for one in found.response["violations"]
        if one["impact"] in _SERIOUS
    ]
