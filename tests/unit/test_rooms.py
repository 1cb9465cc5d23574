"""The picture of the rooms in worker/README.md is the imports'."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from knowledgepulse_worker.cli.entry import main
from support.documents import ROOT, blocks

WORKER = ROOT / "worker" / "knowledgepulse_worker"


def drawn(prefix):
    """Return the rooms that each room of a picture points at, in the picture's order."""
    (picture,) = (
        block.text
        for block in blocks("worker/README.md")
        if block.tag == "text" and re.match(rf"{prefix}\w+ +─▶", block.text)
    )
    rows = re.findall(rf"^{prefix}(\w+) +─▶ (.+)$", picture, re.MULTILINE)
    assert len(rows) == len(picture.splitlines())
    return {room: set(targets.split()) for room, targets in rows}


def rooms(folder):
    return {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}


@cache
def imported(path):
    """Return the modules that a module imports, anywhere in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def arrows(folder):
    """Return the arrows between the rooms of a folder, each with a module that draws it."""
    package = ".".join(folder.relative_to(WORKER.parent).parts)
    return {
        (room, target): path.relative_to(WORKER)
        for room in rooms(folder)
        for path in (folder / room).rglob("*.py")
        for name in imported(path)
        if name.startswith(f"{package}.")
        and (target := name.removeprefix(f"{package}.").split(".")[0]) in rooms(folder) - {room}
    }


def test_every_room_is_drawn_and_every_drawn_room_exists():
    assert set(drawn("")) == rooms(WORKER)


def test_every_import_between_rooms_is_drawn():
    allowed = drawn("")
    assert ("lane", "records") in arrows(WORKER)  # the test sees imports at all
    assert {
        arrow: where for arrow, where in arrows(WORKER).items() if arrow[1] not in allowed[arrow[0]]
    } == {}


def test_no_drawn_arrow_goes_back_up():
    order = [*drawn(""), "schemas"]
    for room, targets in drawn("").items():
        below = order[order.index(room) + 1 :]
        assert targets <= set(below), room


def test_the_tools_stand_apart_but_for_what_is_drawn():
    allowed = drawn("tools/")
    found = arrows(WORKER / "tools")
    assert {
        arrow: where for arrow, where in found.items() if arrow[1] not in allowed.get(arrow[0], set())
    } == {}


def test_every_tool_has_its_command():
    targets = {command._target.split(":")[0] for command in main.commands.values()}
    assert {f"tools.{room}.command" for room in rooms(WORKER / "tools")} <= targets
    for target in targets:
        assert (WORKER / target.replace(".", "/")).with_suffix(".py").exists(), target


def test_the_modules_at_the_root_import_no_room():
    for path in WORKER.glob("*.py"):
        found = {name.split(".")[1] for name in imported(path) if name.startswith("knowledgepulse_worker.")}
        assert not found & rooms(WORKER), path


def test_the_tests_have_the_same_rooms():
    for folder in (WORKER, WORKER / "tools"):
        place = ROOT / "tests" / "unit" / folder.relative_to(WORKER.parent)
        tested = {path.name for path in place.iterdir() if any(path.rglob("test_*.py"))}
        assert tested <= rooms(folder), place


def test_only_faust_py_knows_faust():
    """Its service library and its tests' fixtures included."""
    places = [
        *WORKER.rglob("*.py"),
        *Path(ROOT / "tests" / "unit" / "knowledgepulse_worker" / "stream").glob("*.py"),
    ]
    knowing = {
        path.name for path in places if {name.split(".")[0] for name in imported(path)} & {"faust", "mode"}
    }
    assert knowing == {"faust.py"}
