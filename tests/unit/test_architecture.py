"""worker/README.md draws the import contracts of pyproject.toml; the tests and commands follow the packages.

`make lint` holds the imports themselves against the contracts.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict

import grimp

from knowledgepulse_worker.cli.entry import main
from support.documents import ROOT, blocks

WORKER = ROOT / "worker" / "knowledgepulse_worker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]


LONGEST_FUNCTION, MOST_METHODS = 60, 20
"""The most lines of a function, and methods of a class, in the engine."""

SHARED = {"common", "terminal"}
"""The packages that all tools may import."""


def drawn(prefix):
    """Return the packages that each package of a drawing points at, in the drawing's order."""
    (picture,) = (
        block.text
        for block in blocks("worker/README.md")
        if block.tag == "text" and re.match(rf"{prefix}\w+ +─▶", block.text)
    )
    rows = re.findall(rf"^{prefix}(\w+) +─▶ (.+)$", picture, re.MULTILINE)
    assert len(rows) == len(picture.splitlines())
    return {package: set(targets.split()) for package, targets in rows}


def packages(folder):
    return {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}


def contract(kind):
    """Return the only contract of a kind."""
    (chosen,) = (contract for contract in CONTRACTS if contract["type"] == kind)
    return chosen


def short(module):
    return module.removeprefix("knowledgepulse_worker.")


def test_the_tables_of_the_packages_are_in_the_order_of_the_contracts():
    page = (ROOT / "worker" / "README.md").read_text()
    above, _ = re.split(r"^All tools may import", page, maxsplit=1, flags=re.MULTILINE)
    rows = [
        re.findall(r"\[([\w/]+)\]\(", row.split("|")[1])
        for row in above.splitlines()
        if row.startswith("| [")
    ]
    between, within = (
        [layer.split(" | ") for layer in rules["layers"]]
        for rules in CONTRACTS
        if rules["type"] == "layers" and rules.get("containers", [WORKER.name]) == [WORKER.name]
    )
    assert rows == between + [[f"{package}/" for package in layer] for layer in within[:-1]]


def test_the_drawing_of_the_tools_is_that_of_the_contracts():
    allowed = defaultdict(set)
    for line in contract("independence")["ignore_imports"]:
        importer, target = re.fullmatch(
            r"tools\.(?:(\w+)\.)?\*\* -> knowledgepulse_worker\.tools\.(\w+)\.\*\*", short(line)
        ).groups()
        allowed[importer].add(target)
    assert allowed.pop(None) == SHARED
    assert drawn("tools/") == allowed


def test_what_run_does_not_import_lies_in_the_tools():
    """That it imports nothing of the tools is a contract."""
    graph = grimp.build_graph("knowledgepulse_worker", cache_dir=None)
    commands = {f"knowledgepulse_worker.cli.{name}" for name in ("entry", "run_command", "work_command")}
    imported = commands.union(*(graph.find_upstream_modules(command) for command in commands))
    others = {
        short(module)
        for module in graph.modules - imported
        if not module.startswith("knowledgepulse_worker.tools") and not graph.find_children(module)
    }
    by_name = {"redaction.sdk"}  # the setting redaction.function may name it
    by_agents = {"otel.exporter"}
    assert others == {"cli.check_command", "cli.config_command", "cli.topics_command"} | by_name | by_agents


def test_every_tool_has_its_command():
    tools = set()
    for name, command in main.commands.items():
        package, *folders, module = command.target.split(":")[0].split(".")
        assert module == f"{name.replace('-', '_')}_command"
        assert (WORKER.parent / package).joinpath(*folders, f"{module}.py").exists(), command.target
        tools |= {*folders[1:]}
    assert tools == packages(WORKER / "tools") - SHARED


def test_the_tests_have_the_same_packages():
    for folder in (WORKER, WORKER / "tools", WORKER.parent / "knowledgepulse_curator"):
        place = ROOT / "tests" / "unit" / folder.relative_to(WORKER.parent)
        tested = {path.name for path in place.iterdir() if any(path.rglob("test_*.py"))}
        assert {name for name in tested if not name.endswith(".py")} <= packages(folder), place


def test_the_streams_tests_need_no_faust():
    """The contracts cover the worker, not its tests."""
    folder = ROOT / "tests" / "unit" / "knowledgepulse_worker" / "stream"
    faust = re.compile(r"^\s*(?:from|import) (?:faust|mode)\b", re.MULTILINE)
    assert [path.name for path in folder.glob("*.py") if faust.search(path.read_text())] == []


ENGINE = [*(WORKER / room for room in ("lane", "observe", "stream")), WORKER.parent / "knowledgepulse_kafka"]


def test_the_engine_has_no_long_function_and_no_large_class():
    """Clients of the brokers in memory have the methods of aiokafka's."""
    modules = [path for room in ENGINE for path in room.rglob("*.py") if path.parent.name != "testing"]
    nodes = [(path.stem, node) for path in modules for node in ast.walk(ast.parse(path.read_text()))]
    functions = [(at, node) for at, node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    classes = [(at, node) for at, node in nodes if isinstance(node, ast.ClassDef)]

    assert [
        f"{at}.{node.name}" for at, node in functions if node.end_lineno - node.lineno >= LONGEST_FUNCTION
    ] == []
    assert [
        f"{at}.{node.name}"
        for at, node in classes
        if sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body) > MOST_METHODS
    ] == []
