"""The converters' README matches the code."""

import re
from pathlib import Path

import pytest

import schemas.convert
from schemas.convert import SOURCES

README = Path(schemas.convert.__file__).with_name("README.md").read_text(encoding="utf-8")


def table(heading):
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [row for row in section.splitlines() if row.startswith("|")][2:]


def test_the_readme_lists_every_source_and_its_function():
    rows = [re.findall(r"`([^`]+)`", row.rsplit("|", 2)[0]) for row in table("Sources")]

    assert {name for row in rows for name in row if name in SOURCES} == set(SOURCES)
    assert all(hasattr(schemas.convert, name) for row in rows for name in row if name.startswith("from_"))


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_every_example_runs(code):
    exec(compile(code, "README.md", "exec"), {})
