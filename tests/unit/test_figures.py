"""Figures of speed, memory and size in the documents are those of docs/figures.toml."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from importlib import import_module

import pytest

from knowledgepulse_worker.settings import Settings
from support.documents import DOCUMENTS, ROOT, read

FIGURES = tomllib.loads((ROOT / "docs/figures.toml").read_text(encoding="utf-8"))
PAGES = [name for name in DOCUMENTS if not name.startswith(("tests/", "deploy/")) and name != "CHANGELOG.md"]
"""The changelog is history; the tests' own documents are reports of studies, each with its method."""

QUANTITY = re.compile(
    r"\d[\d,.]* ?(?:(?:records|traces|texts|requests)/s|[kMGT]i?B(?:/s)?\b|ms\b|µs\b|core-hours?\b)"
)
GENERATED = re.compile(r"^<!-- generated: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
UNITS = {"ms": 1e-3, "KiB": 2**10, "MiB": 2**20}


def quantities(page):
    return set(QUANTITY.findall(GENERATED.sub("", read(page))))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_gives_no_figure_that_was_not_measured(page):
    measured = {value for run in FIGURES["runs"] if page in run["pages"] for value in run["values"]}

    assert quantities(page) - FIGURES["limits"].keys() <= measured, "add them to docs/figures.toml"


@pytest.mark.parametrize("run", FIGURES["runs"], ids=lambda run: run["command"])
def test_a_figure_says_where_it_comes_from_and_is_quoted(run):
    assert run["machine"] in FIGURES["machines"]
    assert run["measured"] <= date.today()  # noqa: DTZ011  a day, not a time
    assert run["commit"]
    assert run["values"].keys() <= set().union(*map(quantities, run["pages"]))


@pytest.mark.parametrize(("text", "source"), FIGURES["limits"].items())
def test_a_limit_is_that_of_its_setting_or_constant(text, source):
    number, unit = text.split()
    if ":" in source:
        module, name = source.split(":")
        value = getattr(import_module(module), name)
    else:
        section, name = source.split(".")
        value = getattr(getattr(Settings(), section), name)
    assert float(number) * UNITS[unit] == pytest.approx(value)
