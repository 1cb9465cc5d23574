"""Strangers write the texts under the project's patterns: the time of none may outgrow the text.

While a pattern searches, it holds the interpreter's lock, and nothing in its process can end it.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections import defaultdict
from dataclasses import fields, is_dataclass
from itertools import combinations
from pathlib import Path
from re import _constants as code
from re import _parser as parser

import pytest

from support.documents import ROOT

PACKAGES = (
    *(ROOT / "worker" / name for name in ("knowledgepulse_worker", "knowledgepulse_kafka")),
    *(ROOT / "schemas" / name for name in ("knowledgepulse_convert", "knowledgepulse_schemas")),
)
TRUSTED = {rb"<(script|style)>(.*?)</\1>", r"^Accepts: (.*?)\.$(?=\n\S|\n*\Z)"}
"""Patterns that read nothing but the project's own files."""
MODULES = [
    ".".join([package.name, *path.relative_to(package).with_suffix("").parts])
    for package in PACKAGES
    for path in sorted(package.rglob("*.py"))
    if re.search(r"\bre\.[a-z]+\(|\bMeta\(pattern=", path.read_text())
]
METHODS = {"sub": "finditer", "subn": "finditer", "findall": "finditer", "split": "finditer"} | {
    name: name for name in ("finditer", "search", "match", "fullmatch")
}
ALL_METHODS = {"finditer", "match", "fullmatch"}
SHORT, LONG = 400, 3200
"""Characters of the compared texts."""
GROWTH = 3 * LONG / SHORT
"""The time may grow by this factor; if it grows with the square of the length, it grows by 64."""
VARIANTS = 12
"""Texts for each part of a pattern, with other characters of its classes and other alternatives."""
COSTLIEST = 3
"""The short texts of each pattern that are also tried long."""


def methods_of(module):
    """Return the methods that a module names for each name, and the patterns in its functions."""
    tree = ast.parse(Path(module.__file__).read_text())
    called, inline = defaultdict(set), []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    in_functions = {id(node): function.name for function in functions for node in ast.walk(function)}
    at_import = {  # functions whose patterns are in the module's members
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and id(node) not in in_functions
    }

    def evaluated(written):
        return eval(compile(ast.Expression(written), "", "eval"), vars(module))

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="compile"), args=arguments) if (
                in_functions.get(id(node), "") not in at_import | {""}
            ):
                inline.append((f"line {node.lineno}", re.compile(*map(evaluated, arguments)), ALL_METHODS))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[written, *_]) if (
                method in METHODS
            ):
                flags = [evaluated(keyword.value) for keyword in node.keywords if keyword.arg == "flags"]
                pattern = re.compile(evaluated(written), *flags)
                inline.append((f"line {node.lineno}", pattern, {METHODS[method]}))
            case ast.Attribute(value=ast.Name(id=name), attr=method) if method in METHODS:
                called[name].add(METHODS[method])
    return called, inline


def compiled(value, module):
    """Yield the patterns in a module's member."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from compiled(item, module)
    elif isinstance(value, dict):
        yield from compiled([*value, *value.values()], module)
    elif isinstance(value, type) and value.__module__ == module:
        members = [member for name, member in vars(value).items() if not name.startswith("__")]
        yield from compiled(members, module)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from compiled([getattr(value, field.name) for field in fields(value)], module)
    elif isinstance(getattr(value, "__metadata__", None), tuple):
        yield from (re.compile(item.pattern) for item in value.__metadata__ if getattr(item, "pattern", None))


def patterns(name):
    """Yield each pattern of a module with its place and the methods that are called on it."""
    module = importlib.import_module(name)
    called, inline = methods_of(module)
    yield from inline
    for member, value in vars(module).items():
        if not member.startswith("__"):
            for number, pattern in enumerate(compiled(value, name)):
                yield f"{member} {number}", pattern, called[member] or ALL_METHODS


def parts(parsed, variant, groups):
    """Yield texts for the parts of a parsed pattern, which together match it."""
    for operation, argument in parsed:
        match operation, argument:
            case code.LITERAL, number:
                yield chr(number)
            case (code.NOT_LITERAL, _) | (code.ANY, _):
                yield "a\n 0<"[variant % 5]
            case code.IN, items:
                yield character(items, variant)
            case ((code.MAX_REPEAT | code.MIN_REPEAT | code.POSSESSIVE_REPEAT), (lowest, _, inner)):
                once = list(parts(inner, variant, groups))
                yield from once
                yield "".join(once) * (lowest - 1)
            case code.SUBPATTERN, (number, _, _, inner):
                inside = list(parts(inner, variant, groups))
                groups[number] = "".join(inside)
                yield from inside
            case (code.ASSERT, (1, inner)) | (code.ATOMIC_GROUP, inner):
                yield from parts(inner, variant, groups)
            case code.BRANCH, (_, alternatives):
                yield from parts(alternatives[variant % len(alternatives)], variant, groups)
            case code.GROUPREF, number:
                yield groups.get(number, "")


def character(items, variant):
    """Return a character of a class."""
    if items[0][0] is code.NEGATE:
        excluded = {number for operation, number in items if operation is code.LITERAL}
        likely = [letter for letter in "a\n 0<.'=" if ord(letter) not in excluded]
        return likely[variant % len(likely)]
    operation, argument = items[variant % len(items)]
    if operation is code.CATEGORY:
        characters = {code.CATEGORY_SPACE: " \n\t", code.CATEGORY_DIGIT: "01"}.get(argument, "ab0")
        return characters[variant % len(characters)]
    return chr(argument[0] if operation is code.RANGE else argument)


def merged(texts):
    """Return the parts of a pattern with single characters joined to words, but for white space."""
    words = [""]
    for text in texts:
        if len(text) == 1 and not text.isspace() and words[-1].strip() == words[-1]:
            words[-1] += text
        else:
            words += [text, ""] if text.isspace() else [text]
    return [word for word in words if word]


def texts(pattern, length):
    """Return texts of about a length, each the beginning of a match and then a part of it again and again."""
    written = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    found = {}
    for variant in range(VARIANTS):
        pieces = merged(parts(parser.parse(written, pattern.flags & ~re.LOCALE), variant, {}))
        for start, stop in combinations(range(len(pieces) + 1), 2):
            prefix, repeated = "".join(pieces[:start]), "".join(pieces[start:stop])
            found[prefix, repeated] = prefix + repeated * (length // len(repeated))
    if isinstance(pattern.pattern, bytes):
        return {key: text.encode() for key, text in found.items()}
    return found


def cost(pattern, method, text):
    """Return the processor's time for a search in nanoseconds."""
    before = time.thread_time_ns()
    result = getattr(pattern, method)(text)
    if method == "finditer":
        for _ in result:
            pass
    return time.thread_time_ns() - before


def growth(pattern, method):
    """Return how the time grows from short texts to long ones, at most, and for which text."""
    short, long = texts(pattern, SHORT), texts(pattern, LONG)
    costs = {key: cost(pattern, method, text) for key, text in short.items()}
    grown = {}
    for key in sorted(costs, key=costs.get)[-COSTLIEST:]:
        before = min(cost(pattern, method, short[key]) for _ in range(5))
        grown[key] = min(cost(pattern, method, long[key]) for _ in range(3)) / max(before, 1)
    return max((factor, key) for key, factor in grown.items())


@pytest.mark.parametrize("module", MODULES)
def test_no_pattern_takes_longer_than_in_proportion_to_the_text(module):
    all_patterns = list(patterns(module))
    assert all_patterns
    for place, pattern, methods in all_patterns:
        if pattern.pattern in TRUSTED:
            continue
        for method in methods:
            factor, text = growth(pattern, method)
            assert factor < GROWTH, (place, method, text)


def test_patterns_are_found_wherever_a_module_has_them(tmp_path, monkeypatch):
    (tmp_path / "places_of_patterns.py").write_text(
        "import re\nfrom typing import Annotated\nfrom msgspec import Meta\n"
        "A, B = re.compile('a'), {'b': [re.compile('b')]}\n"
        "class C:\n    c = re.compile('c')\n"
        "D = Annotated[str, Meta(pattern='d')]\n"
        "def f(text):\n    return re.sub('e', '', text, flags=re.I), re.compile('f').search(text)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert {pattern.pattern for _, pattern, _ in patterns("places_of_patterns")} == set("abcdef")


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (re.compile(r"^Action:[ \t]*(?P<name>[^\n]+)\nAction Input:[ \t]*", re.MULTILINE), "search"),
        (re.compile(r"<parameter=(?P<name>[^>]+)>"), "finditer"),
        (re.compile(r"<(task|feedback)>\n?(.*?)\n?</\1>", re.DOTALL), "finditer"),
        (re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n```", re.DOTALL), "finditer"),
        (re.compile(r"<message>.*?</message>\s*<name>(.*?)</name>", re.DOTALL), "match"),
        (re.compile(r"\s*\[\["), "search"),
    ],
    ids=lambda value: getattr(value, "pattern", value),
)
def test_patterns_that_the_project_had_are_noticed(pattern, method):
    assert growth(pattern, method)[0] > GROWTH
