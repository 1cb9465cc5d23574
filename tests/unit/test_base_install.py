"""The commands with the base dependencies alone: what works, and what names the extra that it needs."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from knowledgepulse_worker.cli.entry import main
from support.base_install import BaseInstall


@pytest.fixture(scope="module")
def base_install(tmp_path_factory):
    return BaseInstall(tmp_path_factory.mktemp("base"))


@pytest.fixture
def traces(tmp_path, real_traces):
    file = tmp_path / "traces.jsonl"
    file.write_bytes(b"\n".join(real_traces[:5]))
    return str(file)


def test_it_has_no_model_and_no_faust(base_install):
    """The other tests prove nothing otherwise."""
    done = base_install.python("-c", "import faust")
    assert "No module named 'faust'" in done.stderr
    done = base_install.python("-c", "import torch")
    assert "No module named 'torch'" in done.stderr


def test_every_command_has_its_help(base_install):
    code = "import sys; from knowledgepulse_worker.cli.entry import main; "
    code += "[main([name, '--help'], standalone_mode=False) for name in main.commands if name != 'work']"
    done = base_install.python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage:") == len(main.commands) - 1


def test_the_help_recommends_the_demo_only_where_it_is_installed(base_install):
    assert "kp-worker demo" not in base_install.kp_worker("--help").stdout
    assert "New here? Try `kp-worker demo`.\n" in CliRunner().invoke(main, ["--help"]).stdout


def test_traces_are_scored_without_an_embedder(base_install, traces):
    done = base_install.kp_worker("score", traces, "--embedder", "none")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 5


def test_other_formats_are_converted(base_install, tmp_path):
    chat = [{"role": "user", "content": "Fix it"}, {"role": "assistant", "content": "Done"}]
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(chat))
    done = base_install.kp_worker("convert", str(file))
    assert done.returncode == 0
    assert json.loads(done.stdout)["task"]["objective"] == "Fix it"


RUN_ALL = """if True:
    import json, sys
    from click.testing import CliRunner
    from knowledgepulse_worker.cli.entry import main
    for command in json.loads(sys.argv[1]):
        done = CliRunner().invoke(main, command)
        print(json.dumps([done.exit_code, done.stderr]))
"""


@pytest.fixture
def run_all(base_install):
    """Run commands in one process; return the status and standard error of each."""

    def run(commands, **environment):
        done = base_install.python("-c", RUN_ALL, json.dumps(commands), **environment)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_what_needs_kafka_gets_as_far_as_the_broker(run_all):
    commands = [["topics"], ["publish", "-"], ["dead-letters", "list"], ["audit"]]
    for status, error in run_all(commands, KP_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1"):
        assert status == 1
        assert error.startswith("Error: kafka.bootstrap_servers: 127.0.0.1:1: ")
        assert len(error.splitlines()) == 1


def test_a_command_that_needs_an_extra_names_it_in_one_line(run_all, traces, tmp_path):
    protobuf = tmp_path / "spans.pb"
    protobuf.write_bytes(b"\x0a\x00")
    needed = {
        "run": "worker",
        "assemble": "worker",
        "evaluations": "worker",
        "contributions send": "worker",
        f"score {traces}": "worker",
        f"traces list {traces}": "worker",
        "demo": "demo",
        f"policy tune {traces} --embedder none": "policy",
        f"export dataset {traces}": "export",
        f"convert {protobuf} --from otlp": "otel",
    }
    found = run_all([command.split() for command in needed])
    for (command, extra), (status, error) in zip(needed.items(), found, strict=True):
        assert status == os.EX_CONFIG, command
        assert error.startswith("Error: "), command
        assert error.endswith(f": pip install -c constraints.txt '.[{extra}]'\n"), command
        assert len(error.splitlines()) == 1, command
