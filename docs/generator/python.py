"""The public Python API, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from textwrap import dedent
from typing import Any

PUBLIC: dict[str, tuple[str, ...] | None] = {
    "knowledgepulse_schemas": None,
    "knowledgepulse_schemas.convert": None,
    "knowledgepulse_worker.scoring": None,
    "knowledgepulse_worker.tools.publish.trace_publisher": ("TracePublisher",),
}
"""The public names of each module; None stands for its ``__all__``."""

_HEADING = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$", re.MULTILINE)
_CODE = re.compile(r"::\n\n((?: {4}.*\n?|\n)+)")
_ENTRY = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*(?:\n {6,}.*)*)", re.MULTILINE)


def page() -> str:
    """Return a section for each module, with a section for each of its names."""
    return "\n".join(line for name, names in PUBLIC.items() for line in _module(name, names))


def _module(name: str, names: tuple[str, ...] | None) -> Iterator[str]:
    module = import_module(name)
    yield f"\n## {name}\n"
    yield f"{_docstring(module)}\n"
    for public in names or module.__all__:
        yield from _name(name, public, getattr(module, public))


def _name(module: str, name: str, value: Any) -> Iterator[str]:
    yield f"### {name} {{ #{module}.{name} }}\n"
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return
    if signature := _signature(value):
        yield f"```python\n{name}{signature}\n```\n"
    yield f"{_docstring(value)}\n"
    if inspect.isclass(value):
        for method, function in list(vars(value).items()):
            called = inspect.unwrap(getattr(function, "__func__", function))
            if not method.startswith("_") and inspect.isfunction(called) and called.__doc__:
                yield f"#### {name}.{method} {{ #{module}.{name}.{method} }}\n"
                yield f"```python\n{method}{_signature(called)}\n```\n"
                yield f"{_docstring(called)}\n"


def _signature(value: Any) -> str:
    try:
        return re.sub(r"\b(?:typing|collections\.abc)\.", "", str(inspect.signature(value)))
    except ValueError:  # a type that is built in or is no class
        return ""


def _docstring(value: Any) -> str:
    """Return a docstring of the Google convention as Markdown."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and text == inspect.getdoc(value.__mro__[1]):
        return ""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`"))
    text = _CODE.sub(_code, text)
    description, *parts = _HEADING.split(text)
    lines = [description.rstrip()]
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        entries = _ENTRY.findall(body)
        lines.append(f"\n**{heading}**\n")
        described = [f"- `{name}`: {' '.join(what.split())}" for name, what in entries]
        lines += described or [inspect.cleandoc(body)]
    return "\n".join(lines)


def _code(found: re.Match[str]) -> str:
    """Return an indented block after a double colon as a fenced one."""
    after_text = found.start() > 0 and found.string[found.start() - 1] != "\n"
    return f"{':' if after_text else ''}\n\n```python\n{dedent(found[1]).rstrip()}\n```\n\n"
