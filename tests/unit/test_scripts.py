"""What shell scripts outside CI say of metrics, commands and settings, which a rename would break unseen."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest

from generator.metrics import page as metrics_page
from knowledgepulse_worker.cli.entry import main

ROOT = Path(__file__).parents[2]
NAMES = subprocess.run(
    ["git", "ls-files", "deploy/*.sh", "tests/*.sh"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()
SCRIPTS = {name: (ROOT / name).read_text("utf-8") for name in NAMES}
METRICS = {
    name: {*re.findall(r"`(\w+)`", labels), "group"}
    for name, labels in re.findall(r"^\| `(kp_\w+)` \| \w+ \| ([^|]*) \|", metrics_page(), re.MULTILINE)
}
COMMAND = re.compile(r"(?<![-\w])kp(?:-worker)? ((?:[a-z][a-z-]*|--[a-z-]+|-)(?: [^|><&;)\n]*)?)")


@pytest.mark.parametrize("name", [name for name, text in SCRIPTS.items() if "kp_" in text])
def test_a_script_asks_for_metrics_and_labels_that_exist(name):
    for line in SCRIPTS[name].splitlines():
        for metric in re.findall(r"\bkp_\w+", line):
            assert metric in METRICS
            labels = re.findall(r"labels\['(\w+)'\]|\bby ?\((\w+)\)|\[\"metric\"\]\[\"(\w+)\"\]", line)
            assert {label for found in labels for label in found if label} <= METRICS[metric]


def test_scripts_run_commands_with_options_that_exist():
    ran = [
        words.split()
        for text in SCRIPTS.values()
        for line in text.splitlines()
        if not line.lstrip().startswith(("#", "echo "))
        for words in COMMAND.findall(line)
        if words.split()[0] in main.commands
    ]

    assert len(ran) > 5
    for rest in ran:
        command, words = main, rest
        while isinstance(command, click.Group):
            _, command, words = command.resolve_command(click.Context(main), words)
        assert command is not None
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_the_deployment_check_edits_settings_that_the_deployed_file_has():
    (edited,) = set(re.findall(r'sed "s/\^(\w+) =', SCRIPTS["deploy/check.sh"]))

    assert re.search(rf"^{edited} = ", (ROOT / "deploy/config/worker.toml").read_text("utf-8"), re.MULTILINE)
