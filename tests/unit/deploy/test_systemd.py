"""The systemd units of deploy/ are whole, and do what their page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from knowledgepulse_curator.fitting.fit_command import NO_PROPOSAL
from knowledgepulse_worker.settings import Settings
from support.commands import command

UNITS = Path(__file__).parents[3] / "deploy/systemd"
PAGE = UNITS.parents[1] / "docs/curators/feedback.md"


def unit(name):
    """Return the sections of a unit, with the values of each key."""
    sections, section = {}, {}
    for line in (UNITS / name).read_text().splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            section = sections.setdefault(head[1], {})
        elif line and not line.startswith("#"):
            key, value = line.split("=", 1)
            section.setdefault(key, []).append(value)
    return sections


@pytest.fixture(scope="module")
def service():
    return unit("kp-worker-feedback.service")["Service"]


def scripts(service):
    shells = [shlex.split(line) for line in service["ExecStart"]]
    assert all(words[:2] == ["/bin/sh", "-c"] and len(words) == 3 for words in shells)
    return [words[2] for words in shells]


@pytest.fixture
def run(service, tmp_path):
    """Run a script of the service with a `kp-worker` that says what it was asked, and return its status."""

    def ran(script, status):
        stub = tmp_path / "kp-worker"
        stub.write_text(f'#!/bin/sh\necho "$*"\nexit {status}\n')
        stub.chmod(0o755)
        environment = dict(assignment.split("=", 1) for assignment in service["Environment"])
        environment["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["/bin/sh", "-c", script], cwd=tmp_path, env=environment, check=False
        ).returncode

    return ran


def test_its_commands_have_the_options_that_it_gives(service):
    for script in scripts(service):
        words = shlex.split(script.partition(">")[0])
        assert words[:2] == ["kp-worker", "policy"]
        options = {name for parameter in command(*words[1:]).params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_an_evaluation_that_fails_leaves_the_former_one(service, run, tmp_path):
    evaluate, fit = scripts(service)

    assert run(evaluate, 0) == 0
    said = (tmp_path / "evaluation.json").read_text()
    assert (
        said == "policy evaluate --labels-topic labels --config /etc/kp-worker/worker.toml "
        "--watch evaluation.json --json\n"
    )
    assert run(evaluate, 1) != 0
    assert (tmp_path / "evaluation.json").read_text() == said
    assert run(fit, 0) == 0


def test_labels_that_support_no_change_are_no_failure_of_the_unit(service):
    assert service["SuccessExitStatus"] == [str(NO_PROPOSAL)]


def test_the_page_shows_the_file_that_the_service_writes(service):
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    settings = Settings(**tomllib.loads(block))

    assert settings.web.evaluation == Path(service["WorkingDirectory"][0]) / "evaluation.json"
    assert service["WorkingDirectory"] == [f"/var/lib/{service['StateDirectory'][0]}"]


def test_the_timer_starts_the_service_at_the_time_that_the_page_names():
    timer = unit("kp-worker-feedback.timer")

    assert timer["Timer"]["OnCalendar"] == ["*-*-* 03:00:00"]
    assert "at three o'clock" in PAGE.read_text()
    assert timer["Install"]["WantedBy"] == ["timers.target"]


def test_the_worker_is_stopped_in_order_and_not_started_again_with_wrong_settings():
    service = unit("kp-worker.service")["Service"]
    (start,) = service["ExecStart"]
    _, name, *arguments = start.split()
    needed = Settings().limits.drain + 30

    assert (name, arguments) == ("run", ["--config", "${CONFIG}"])
    assert "--config" in {option for parameter in command("run").params for option in parameter.opts}
    assert int(service["TimeoutStopSec"][0]) >= needed
    assert service["KillMode"] == ["mixed"], "a signal for the child would be no end in order"
    assert service["Restart"] == ["on-failure"]
    assert service["RestartPreventExitStatus"] == [str(os.EX_CONFIG)]
