"""What the demo says at its end: how many traces pass, why the best one did, and what it took."""

import shutil
import sys
from collections import Counter
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring.content import content
from knowledgepulse_worker.settings import Settings, override
from knowledgepulse_worker.tools.demo.demo_report import Results, line_of, summarise, what_next
from support.scored import scored_record

SETTINGS = override(Settings(), "policy", {"threshold": 0.5})
STATUS = {
    "latency": {"scoring": {"p50": 0.031, "p99": 0.0876, "over_budget": 1}},
    "worker": {"embedding_pass_seconds": 0.028},
}


@pytest.fixture
def printed():
    """Return what is printed of results, in one line."""

    def read(results, settings=SETTINGS, status=STATUS):
        console = Console(file=StringIO(), width=200, force_terminal=False)
        summarise(console, results, status, settings)
        return " ".join(console.file.getvalue().split())

    return read


def record(objective, policy=SETTINGS.policy):
    return replace(scored_record(policy=policy), content=content(objective, [], "", None))


def test_it_tells_how_many_pass_and_why_the_best_one_did(printed):
    results = Results(
        Counter({"contribute": 1, "rejected": 3, "dead letter": 0}), [record("Fix the [red] build")], 9.6
    )

    text = printed(results)

    assert "25% of 4 traces pass: 1 contribute, 3 rejected, 0 dead letter." in text
    assert "from traces pass 0." in text
    assert "is “Fix the [red] build”, most of all for its tool diversity (" in text
    assert "A score took 31 ms (median) to 88 ms (p99); 1 of 1 took longer than the budget of 100 ms." in text
    assert "On this processor, a text that fills the model's window takes 28 ms if nothing else uses" in text
    assert "All took 10 s." in text


@pytest.mark.parametrize(
    ("alone", "said"),
    [
        (None, "none of 0 took longer than the budget of 100 ms. All took"),
        (0.0004, "budget of 100 ms. On this processor, a text that fills the model's window takes 0.4 ms if"),
        (
            0.237,
            "a text that fills the model's window takes 237 ms, too long for the budget; `kp-worker demo",
        ),
    ],
)
def test_a_processor_that_is_too_slow_for_the_budget_is_the_reason(printed, alone, said):
    scoring = {"p50": 0.2, "p99": 0.3, "over_budget": 0}
    status = {"latency": {"scoring": scoring}, "worker": {"embedding_pass_seconds": alone}}

    assert said in printed(Results(Counter({"dead letter": 2}), [], 1.0), status=status)


def test_the_best_trace_of_another_policy_is_named_without_a_reason(printed):
    """Somebody has edited the policy under the running demo."""
    text = printed(Results(Counter(contribute=1), [record("Fix it", Policy(threshold=0.2))], 1.0))

    assert "is “Fix it”." in text


def test_dead_letters_alone_are_counted(printed):
    assert "0% of 2 traces pass: 2 dead letter." in printed(Results(Counter({"dead letter": 2}), [], 1.0))


def test_an_objective_of_several_lines_is_one_short_line():
    line = line_of(record("Fix\n\n" + "x" * 100))

    assert "\n" not in line
    assert line.endswith("…")
    assert "Fix xxx" in line


@pytest.mark.parametrize("stay", [False, True])
def test_a_command_to_copy_is_on_one_line(monkeypatch, stay):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["/home/ann/.venv/bin/kp-worker"])
    console = Console(file=StringIO(), width=40, force_terminal=False)

    what_next(console, "http://127.0.0.1:6066/", stay=stay)

    assert "/home/ann/.venv/bin/kp-worker config --init" in console.file.getvalue().splitlines()
