"""`make test` changes the machine only where it may, and says so before."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = "apt-get install --no-install-recommends prometheus chromium curl"
REMEDY = f"To install: {PACKAGES}, as root\n"


@pytest.fixture
def machine(tmp_path):
    """A machine without the programs; each command that a test allows is written down instead of run."""
    log = tmp_path / "log"
    log.touch()

    def provide(name, answer=""):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>"{log}"\n{answer}\n')
        program.chmod(0o755)

    provide("install")
    provide("rm")
    provide("id", "echo 0")
    provide("apt-get")
    provide.log = log
    provide.path = str(tmp_path)
    return provide


def tools(machine, *programs, **options):
    environment = {"PATH": machine.path} | options.pop("env", {})
    command = ["/bin/sh", ROOT / "tests/tools.sh", *(programs or ("prometheus", "chromium", "curl"))]
    return subprocess.run(command, env=environment, text=True, check=False, **options)


def installed(machine):
    return "apt-get install" in machine.log.read_text()


def test_a_machine_that_has_the_programs_is_left_alone(machine):
    for name in ("prometheus", "promtool", "chromium", "curl"):
        machine(name)
    done = tools(machine, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.log.read_text() == ""


def test_only_the_programs_that_the_tests_start_are_needed(machine):
    machine("curl")
    done = tools(machine, "curl", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert not installed(machine)


def test_without_a_terminal_it_says_what_it_installs_and_installs_it(machine):
    done = tools(machine, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert done.returncode == 0
    assert done.stderr.endswith(f"Running {PACKAGES}\n")
    assert installed(machine)


def test_one_variable_forbids_it(machine):
    done = tools(machine, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env={"APT_INSTALL": "no"})
    assert done.returncode == 1
    assert done.stderr.endswith(REMEDY)
    assert not installed(machine)


@pytest.mark.parametrize(("name", "answer"), [("id", "echo 1000"), ("apt-get", None)])
def test_without_a_way_to_install_the_way_to_get_it_is_printed(machine, name, answer):
    if answer is None:
        (Path(machine.path) / name).unlink()
    else:
        machine(name, answer)
    done = tools(machine, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.endswith(REMEDY)
    assert not installed(machine)
