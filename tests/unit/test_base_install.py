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
    code = "import importlib.util; print([importlib.util.find_spec(name) for name in ('faust', 'torch')])"
    assert base_install.python("-c", code).stdout == "[None, None]\n"


def test_the_help_recommends_the_demo_only_where_it_is_installed(base_install):
    assert "kp-worker demo" not in base_install.kp_worker("--help").stdout
    assert "New here? Try `kp-worker demo`.\n" in CliRunner().invoke(main, ["--help"]).stdout


RUN_ALL = """if True:
    import json, sys
    from click.testing import CliRunner
    from knowledgepulse_worker.cli.entry import main
    for command in json.loads(sys.argv[1]):
        done = CliRunner().invoke(main, command)
        print(json.dumps([done.exit_code, done.stderr, done.stdout]))
"""


@pytest.fixture
def run_all(base_install):
    """Run commands in one process; return the status, standard error and output of each."""

    def run(commands, **environment):
        done = base_install.python("-c", RUN_ALL, json.dumps(commands), **environment)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_every_command_has_its_help_and_files_are_scored_and_converted(run_all, traces, tmp_path):
    names = [name for name in main.commands if name != "work"]
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": role, "content": "Fix it"} for role in ("user", "assistant")]))
    files = [["score", traces, "--embedder", "none"], ["convert", str(chat)]]

    *helps, scored, converted = run_all([*([name, "--help"] for name in names), *files])

    assert [(status, error, said[:6]) for status, error, said in helps] == [(0, "", "Usage:")] * len(names)
    assert (scored[:2], len(scored[2].splitlines())) == ([0, ""], 5)
    assert json.loads(converted[2])["task"]["objective"] == "Fix it"


def test_what_needs_kafka_gets_as_far_as_the_broker(run_all):
    commands = [["topics"], ["dead-letters", "list"], ["audit"]]
    for status, error, _ in run_all(commands, KP_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1"):
        assert status == 1
        assert error.startswith("Error: kafka.bootstrap_servers: 127.0.0.1:1: ")
        assert len(error.splitlines()) == 1


def test_a_publication_gets_as_far_as_the_broker(run_all, traces, tmp_path):
    ((status, error, _),) = run_all(
        [["publish", str(traces), "--spool", str(tmp_path / "spool")]],
        KP_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1",
    )
    assert (status, error) == (
        0,
        f"kafka.bootstrap_servers: 127.0.0.1:1: Connection refused; waiting in {tmp_path / 'spool'}: 1\n",
    )


@pytest.mark.slow
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
    for (command, extra), (status, error, _) in zip(needed.items(), found, strict=True):
        assert status == os.EX_CONFIG, command
        assert error.startswith("Error: "), command
        assert error.endswith(f": pip install -c constraints.txt '.[{extra}]'\n"), command
        assert len(error.splitlines()) == 1, command
