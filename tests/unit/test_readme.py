"""The README's tables say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from prometheus_client import CollectorRegistry

import worker.scoring
from schemas import DeadLetterHeaders
from support.commands import every_command
from worker.cli import main
from worker.observe.metrics import Metrics
from worker.policy import REFERENCE_WEIGHTS, Policy
from worker.settings import describe

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def table(heading):
    """The rows of the first table under a heading, without its head."""
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def shown_default(value):
    if value is None:
        return "not set"
    return f"`{value}`" if not isinstance(value, dict) else "none"


def metric_rows():
    registry = CollectorRegistry()
    Metrics(Policy(), 0.1, registry)
    for collector in registry._collector_to_names:
        family = next(iter(collector.describe()))
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(collector._labelnames) or "-"
        yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


def test_the_settings_table_is_what_the_settings_are():
    assert table("Settings") == [
        f"| `{name}` | {shown_default(default)} | {description} |"
        for name, default, description in describe()
    ]


def test_the_metrics_table_is_what_the_worker_exposes():
    assert table("Metrics") == list(metric_rows())


def test_the_headers_table_names_every_header():
    named = re.findall(r"^\| `([^`]+)`", "\n".join(table("Headers")), re.MULTILINE)
    dead_letter = [field.alias for field in DeadLetterHeaders.model_fields.values()]
    assert named == ["kp-source", "kp-score", "kp-policy", *dead_letter]


def test_the_commands_table_names_every_command():
    named = re.findall(r"^\| `kp-worker ([a-z-]+)", "\n".join(table("Commands")), re.MULTILINE)
    assert sorted(named) == sorted(name for name, command in main.commands.items() if not command.hidden)


def test_the_weights_table_is_the_references():
    assert table("The score") == [
        f"| {name} | {w.complexity:.2f} | {w.novelty:.2f} | {w.tool_diversity:.2f} "
        f"| {w.outcome_confidence:.2f} |"
        for name, w in REFERENCE_WEIGHTS.items()
    ]


@pytest.mark.parametrize("target", re.findall(r"`make ([a-z-]+)`", README))
def test_every_make_target_that_is_named_is_there(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(((?!http|#)[^)#]+)", README))))
def test_every_link_into_the_project_leads_somewhere(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_every_python_example_runs(code):
    exec(compile(code, "README.md", "exec"), {})


def test_every_option_that_is_named_is_there():
    options = {
        option
        for command in every_command().values()
        for p in command.params
        if isinstance(p, click.Option)
        for option in [*p.opts, *p.secondary_opts]
    }
    named = set(re.findall(r"kp-worker [a-z-]+ [^`\n]*?(--[a-z-]+)", README))
    assert named <= options | {"--help"}


def test_the_scorer_in_the_package_docstring_is_public():
    assert {"Scorer", "VectorCache", "score_trace"} <= set(worker.scoring.__all__)
