"""The public Python API, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from textwrap import dedent
from typing import Any

from pydantic import BaseModel

PUBLIC: dict[str, tuple[str, ...] | None] = {
    "knowledgepulse_schemas": None,
    "knowledgepulse_schemas.convert": None,
    "knowledgepulse_worker": None,
    "knowledgepulse_worker.scoring": (
        "Dimensions",
        "Nearest",
        "complexity",
        "embedding_text",
        "novelty",
        "outcome_confidence",
        "quality_score",
        "rescore",
        "score_trace",
        "tool_diversity",
    ),
}
"""The public names of each module; None stands for its ``__all__``."""

_WIDTH = 80
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
    model = inspect.isclass(value) and issubclass(value, BaseModel)
    if not model and (signature := _signature(value)):
        yield f"```python\n{name}{signature}\n```\n"
    yield f"{_docstring(value)}\n"
    if model:
        yield from _fields(value)
    if inspect.isclass(value):
        for method, function in list(vars(value).items()):
            called = inspect.unwrap(getattr(function, "__func__", function))
            if not method.startswith("_") and inspect.isfunction(called) and called.__doc__:
                yield f"#### {name}.{method} {{ #{module}.{name}.{method} }}\n"
                yield f"```python\n{method}{_signature(called)}\n```\n"
                yield f"{_docstring(called)}\n"


def _fields(model: type[BaseModel]) -> Iterator[str]:
    yield "**Fields**\n"
    for name, field in model.model_fields.items():
        needed = "required" if field.is_required() else "optional"
        described = f": {field.description}" if field.description else ""
        yield f"- `{field.alias or name}`, {needed}{described}"
    yield ""


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except ValueError:  # a type that is built in or is no class
        return ""
    arguments = []
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(one.startswith("*") for one in arguments):
            arguments.append("*")
        if name not in {"self", "cls"}:
            arguments.append(_without_quotes(str(parameter)))
    arrow = (
        f" -> {str(signature).rpartition('-> ')[2]}"
        if signature.return_annotation is not signature.empty
        else ""
    )
    returned = _without_quotes(arrow)
    line = f"({', '.join(arguments)}){returned}"
    return line if len(line) <= _WIDTH else "(\n    " + ",\n    ".join(arguments) + f",\n){returned}"


def _without_quotes(annotated: str) -> str:
    """Return a parameter, or the arrow and what is returned, as its source has it."""
    annotated = re.sub(r"ForwardRef\('([^']*)'[^)]*\)", r"\1", annotated)
    annotated = re.sub(r"(: |-> )'([^']*)'", r"\1\2", annotated)
    annotated = re.sub(r"<function .*>", "…", annotated)
    return re.sub(r"\b(?:typing|collections\.abc)\.", "", annotated)


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
