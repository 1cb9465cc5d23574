"""The commands that need no broker."""

from __future__ import annotations

import codecs
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from knowledgepulse_convert import INPUT_FORMATS
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.cli import entry as cli
from knowledgepulse_worker.cli.examples import EXAMPLES, TASKS
from knowledgepulse_worker.embedding import LexicalEmbedder
from knowledgepulse_worker.policy import REFERENCE_WEIGHTS
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.terminal.lazy_command import loaded
from knowledgepulse_worker.tools.demo.processes import free_ports
from support.commands import command

KP_WORKER = [sys.executable, "-m", "knowledgepulse_worker.cli.entry"]


@pytest.fixture
def traces(tmp_path, real_traces):
    """Return a file of the real traces."""
    file = tmp_path / "traces.jsonl"
    file.write_bytes(b"\n".join(real_traces) + b"\n")
    return file


@pytest.mark.parametrize(
    ("chosen", "threads"), [({}, [1]), ({"OPENBLAS_NUM_THREADS": str(os.cpu_count())}, [os.cpu_count()])]
)
def test_a_command_computes_in_one_thread_unless_the_user_chooses(chosen, threads):
    """On busy cores, OpenBLAS's threads waited for each other, and the event loop for them."""
    program = """
from knowledgepulse_worker.cli.entry import main
main(["sample", "--help"], standalone_mode=False)
from knowledgepulse_worker.scoring import Scorer
from threadpoolctl import threadpool_info
print([library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"])
"""
    others = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    run = [sys.executable, "-c", program]
    result = subprocess.run(run, env=others | chosen, stdout=subprocess.PIPE, text=True, check=True)
    assert result.stdout.splitlines()[-1] == str(threads)


def test_score_embeds_the_chosen_text_of_each_trace(kp_worker, traces, real_traces):
    result = kp_worker("score", traces, "--embedder", "lexical", "--text", "agent")

    embedder = LexicalEmbedder()
    scorer = Scorer(lambda text: embedder.embed([text]).vectors[0], text="agent")
    expected = [scorer.evaluate(ReasoningTrace.model_validate_json(line)).novelty for line in real_traces]
    assert [json.loads(line)["novelty"] for line in result.stdout.splitlines()] == pytest.approx(expected)


def test_a_scored_line_has_all_fields(kp_worker, traces):
    lines = kp_worker("score", traces, "--embedder", "lexical").stdout.splitlines()
    fields = (
        "id quality_score complexity novelty tool_diversity outcome_confidence overrides domain "
        "threshold nearest withheld learned share rank of decision task_domain visibility "
        "privacy_level success confidence embedder content counts agent_id ending judged assumed_confidence "
        "partition"
    )
    assert list(json.loads(lines[1])) == fields.split()
    assert json.loads(lines[1])["embedder"] == "lexical, text parts"
    assert json.loads(lines[1])["nearest"] == json.loads(lines[0])["id"]


def test_escapes_terminal_control_characters_from_producers(kp_worker, tmp_path, real_traces):
    """JSON strings may contain C1 controls and bidirectional formatting characters."""
    trace = json.loads(real_traces[0]) | {"id": "kp:trace:\x9b31m\u202e\u2066evil"}
    file = tmp_path / "hostile.jsonl"
    file.write_text(json.dumps(trace, ensure_ascii=False) + "\n")

    result = kp_worker("score", file, "--embedder", "none")

    assert result.stdout.isascii()
    assert json.loads(result.stdout)["id"] == trace["id"]


def test_reports_an_invalid_line_and_scores_the_rest(kp_worker, tmp_path, real_traces):
    file = tmp_path / "mixed.jsonl"
    file.write_bytes(b"\n".join([real_traces[0], b"", b"no trace", real_traces[1], b"[]"]))

    result = kp_worker("score", file, "--embedder", "none")

    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert f"{file}:3: not_json: " in result.stderr
    assert f"{file}:5: invalid_trace: " in result.stderr
    assert "2 of 4 lines are invalid" in result.stderr


def test_files_and_standard_input_are_scored_as_one_stream(kp_worker, traces, real_traces):
    result = kp_worker("score", traces, "-", "--embedder", "lexical", input=real_traces[0])

    last = json.loads(result.stdout.splitlines()[-1])
    assert len(result.stdout.splitlines()) == 155
    assert last["novelty"] == pytest.approx(0, abs=1e-6), "it is in the first file, too"


@pytest.mark.parametrize(
    ("words", "begun", "completed"),
    [
        ([], "", {name for name in cli.main.commands if name != "work"}),
        (["dead-letters"], "re", {"replay"}),
        (["publish"], "--dr", {"--dry-run"}),
        (["publish", "--key"], "a", {"agent_id"}),
    ],
)
def test_commands_options_and_choices_are_completed(words, begun, completed):
    found = ShellComplete(cli.main, {}, "kp-worker", "_KP_WORKER_COMPLETE").get_completions(words, begun)
    assert {record.value for record in found} == completed


def test_config_prints_what_differs_from_the_defaults_and_the_schema_of_the_file(kp_worker, tmp_path):
    file = tmp_path / "worker.toml"
    file.write_text('[policy]\nshare = 0.2\n[kafka]\nsasl_password = "hunter2"\n[web]\nport = 6066\n')

    changed = kp_worker("config", "--changed", "--config", file).stdout

    assert "hunter2" not in changed
    assert "# kafka.sasl_password is set" in changed
    assert tomllib.loads(changed) == {"kafka": {}, "policy": {"share": 0.2}}
    schema = json.loads(kp_worker("config", "--schema").stdout)
    assert schema["properties"].keys() == Settings.model_fields.keys()


def test_a_command_that_reads_uses_the_file_of_its_folder_and_says_so(kp_worker, tmp_path, monkeypatch):
    """Without `--config`, `policy tune` silently answered about the scores of another embedder."""
    monkeypatch.chdir(tmp_path)
    assert kp_worker("config", "--init").stdout == "wrote worker.toml\n"

    found = kp_worker("config", "--changed")

    assert found.stderr == f"settings: {tmp_path / 'worker.toml'}\n"
    assert "share = 0.1" in found.stdout
    assert kp_worker("config", "--changed", "--config", os.devnull).stderr == ""
    monkeypatch.setenv("KP_CONFIG", os.devnull)
    unfound = kp_worker("config", "--changed")
    assert (unfound.stdout, unfound.stderr) == ("", ""), "it is no setting that is ignored"


def test_a_command_in_a_folder_that_was_deleted_finds_no_settings(kp_worker, tmp_path, monkeypatch):
    """It said that standard output does not exist."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert kp_worker("config", "--changed").exit_code == 0


@pytest.mark.parametrize(
    "command",
    [["run"], ["topics"], ["publish", "-"], ["dead-letters", "list"], ["export", "-"], ["assemble"]],
)
def test_a_command_that_sends_or_writes_uses_no_file_that_nobody_named(
    kp_worker, tmp_path, monkeypatch, command
):
    """The file of a repository that was cloned must not choose where private traces go."""
    (tmp_path / "worker.toml").write_text("[kafka]\nno_such = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KP_KAFKA__BOOTSTRAP_SERVERS", "not a server")

    result = kp_worker(*command)

    assert "no_such" not in result.stderr
    assert "not a server" in result.stderr


def test_formats_are_listed_by_their_own_option(kp_worker):
    lines = kp_worker("convert", "--formats").stdout.splitlines()

    assert [line.split()[0] for line in lines] == sorted(INPUT_FORMATS)
    assert all(len(line.split()) > 1 for line in lines)


def test_options_override_the_environment(kp_worker, traces, monkeypatch):
    monkeypatch.setenv("KP_EMBEDDING__BACKEND", "none")
    lines = kp_worker("score", traces, "--embedder", "lexical").stdout.splitlines()
    assert json.loads(lines[5])["nearest"] is not None


def test_config_prints_effective_settings_without_secrets(kp_worker, tmp_path):
    """A masked secret in a saved settings file would be used as the secret."""
    file = tmp_path / "worker.toml"
    file.write_text('[policy]\nthreshold = 0.5\n[kafka]\nsasl_password = "hunter2"\n')

    result = kp_worker("config", "--config", file)

    assert result.exit_code == 0
    shown = tomllib.loads(result.stdout)
    assert shown["policy"]["threshold"] == 0.5
    assert "sasl_password" not in shown["kafka"]
    assert "# kafka.sasl_password is set, but omitted here as a secret" in result.stdout
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("file", "least", "pace"),
    [
        (
            "",
            0.01,
            "with each output, but not within 0.01 s or four times the duration of the last one; every",
        ),
        ("commit_interval = 0.1", 0.1, "every 0.1 s, or 0.05 s while no record is being scored"),
        ("commit_interval = 2", 2, "every 2 s, or 1 s while no record is being scored"),
        (
            "commit_interval = 2\ncommit_min_interval = 1",
            1,
            "with each output, but not within 1 s or four times",
        ),
    ],
)
def test_config_prints_the_pace_of_transactions(kp_worker, tmp_path, file, least, pace):
    """A file of 0.5 that sets the commit interval keeps its pace."""
    (tmp_path / "worker.toml").write_text(f"[kafka]\n{file}\n")

    printed = kp_worker("config", "--config", tmp_path / "worker.toml").stdout

    assert tomllib.loads(printed)["kafka"]["commit_min_interval"] == least
    assert f"effective: a transaction begins {pace}" in printed.replace("\n# ", " ")


def test_a_least_commit_interval_above_the_interval_is_refused(kp_worker, monkeypatch):
    monkeypatch.setenv("KP_KAFKA__COMMIT_MIN_INTERVAL", "0.2")
    result = kp_worker("config")
    assert result.exit_code != 0
    assert "commit_min_interval, 0.2, is more than commit_interval, 0.1" in result.output


def test_config_prints_the_effective_weights(kp_worker, monkeypatch):
    monkeypatch.setenv("KP_POLICY__DOMAINS__CODE__THRESHOLD", "0.6")
    lines = kp_worker("config").stdout.splitlines()
    in_force = [line.removeprefix("# ") for line in lines if line.startswith("# policy.domains.")]
    domains = tomllib.loads("\n".join(in_force))["policy"]["domains"]
    assert domains["code"]["threshold"] == 0.6
    assert domains["finance"]["threshold"] == 0.75
    assert domains["code"]["weights"]["novelty"] == REFERENCE_WEIGHTS["code"].novelty


@pytest.mark.parametrize("name", sorted(cli.main.commands))
def test_the_short_help_is_the_first_sentence_of_the_help(kp_worker, name):
    result = kp_worker(name, "--help")
    assert result.exit_code == 0
    listed = cli.main.commands[name].get_short_help_str()
    assert listed == command(name).get_short_help_str(100)
    assert listed in " ".join(result.output.split())


def commands_below(name, found):
    yield name, loaded(found)
    for each in found.commands.values() if hasattr(found, "commands") else ():
        yield from commands_below(f"{name} {each.name}", each)


def test_every_command_is_listed_by_its_task_and_has_an_example_that_it_takes(kp_worker):
    listed = " ".join(TASKS.values()).split()
    assert sorted(listed) == sorted(name for name, found in cli.main.commands.items() if not found.hidden)
    found = {name: each for top in listed for name, each in commands_below(top, command(top))}
    assert found.keys() == EXAMPLES.keys()
    for name, each in found.items():
        words = shlex.split(EXAMPLES[name].partition(" >")[0])
        assert words[: 1 + len(name.split())] == ["kp-worker", *name.split()]
        own = each if not hasattr(each, "commands") else found[" ".join(words[1:3])]
        options = {option for parameter in own.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, name
        assert EXAMPLES[name] in kp_worker(*name.split(), "--help").output


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (
            ["--help"],
            {"aiohttp", "asyncio", "numpy", "pydantic", "rich", "schemas", "knowledgepulse_worker.tools"},
        ),
        (
            ["config"],
            {
                "aiohttp",
                "numpy",
                "knowledgepulse_worker.embedding",
                "knowledgepulse_worker.kafka",
                "knowledgepulse_worker.lane",
            },
        ),
        (["run", "--help"], {"numpy", "knowledgepulse_worker.embedding", "knowledgepulse_worker.lane"}),
        (["score", "--help"], {"importlib.metadata", "numpy", "pydantic", "rich", "schemas"}),
        (["policy", "tune", "--help"], {"aiokafka", "numpy", "scipy", "sklearn"}),
    ],
)
def test_a_command_imports_no_more_than_it_needs(arguments, unwanted):
    """`kp-worker --help` answers at once, and the parent of a worker's process stays small."""
    unwanted |= {"torch", "faust", "sentence_transformers", "prometheus_client"}
    code = "import sys; from knowledgepulse_worker.cli.entry import main; "
    code += f"main({arguments}, standalone_mode=False); "
    code += f"sys.exit(str(sorted({unwanted} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "[]\n"


def test_a_hangup_ends_a_command_in_the_same_way_as_ctrl_c():
    with subprocess.Popen(
        [sys.executable, "-m", "knowledgepulse_worker.cli.entry", "score", "-", "--embedder", "none"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(b"no trace\n")
        process.stdin.flush()
        process.stderr.readline()  # the command is running, so its signal handler is installed
        process.send_signal(signal.SIGHUP)
        process.communicate()
    assert process.returncode == 128 + signal.SIGHUP


def test_a_signal_between_a_call_and_its_await_is_no_warning():
    code = "import asyncio, click, os, signal; from knowledgepulse_worker.cli.entry import main; "
    code += "stopped = lambda: (asyncio.sleep(0), os.kill(os.getpid(), signal.SIGTERM)); "
    code += "main.add_command(click.Command('stopped', callback=stopped)); main(['stopped'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


def test_an_output_that_cannot_be_written_is_an_error_in_one_line():
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*KP_WORKER, "config"], stdout=full, stderr=subprocess.PIPE, check=False)

    assert (done.returncode, done.stderr) == (1, b"Error: standard output: No space left on device\n")


def in_a_shell(command):
    """Run a shell's command line, in which KP is kp-worker."""
    return subprocess.run(
        command.replace("KP", shlex.join(KP_WORKER)), shell=True, capture_output=True, check=False
    )


def test_traces_are_never_printed_to_a_closed_output(traces):
    done = in_a_shell(f"KP score --embedder none {traces} >&-")

    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: standard output is closed; ")


def test_a_closed_input_is_empty():
    done = in_a_shell("KP publish --dry-run - <&-")

    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"0 records would be published")


def test_a_reader_that_stops_is_no_error_message(traces):
    done = in_a_shell(f"KP score --embedder none {traces} | head -1")

    assert (len(done.stdout.splitlines()), done.stderr) == (1, b"")


def test_text_that_the_locale_lacks_is_escaped(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)

    cli.main(["config"], standalone_mode=False)
    print("größe", flush=True)

    assert output.buffer.getvalue().endswith(b"gr\\xf6\\xdfe\n")


def test_traces_are_utf_8_whatever_the_locale(tmp_path):
    file = tmp_path / "chat.json"
    file.write_text(
        json.dumps([{"role": "user", "content": "Größe?"}, {"role": "assistant", "content": "Ja"}])
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}

    command = [*KP_WORKER, "convert", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)

    assert json.loads(done.stdout)["task"]["objective"] == "Größe?"


def test_a_byte_order_mark_is_no_part_of_the_first_line(kp_worker, tmp_path, real_traces):
    file = tmp_path / "traces.jsonl"
    file.write_bytes(codecs.BOM_UTF8 + b"\n".join(real_traces[:2]))

    result = kp_worker("score", file, "--embedder", "none")

    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)


def test_a_signal_ends_a_command_that_is_being_imported(kp_worker, monkeypatch):
    """A container's first process ignores the signals for which it has no handler."""

    def load(_command):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(cli.LazyCommand, "load", load)
    former = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert kp_worker("run").exit_code == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, former)


def test_an_ignored_sighup_stays_ignored():
    """`nohup kp-worker …`."""
    code = "import signal; from knowledgepulse_worker.cli import entry; "
    code += "entry.main(['config'], standalone_mode=False); "
    code += "assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN"
    shell = ["sh", "-c", 'trap "" HUP; exec "$0" -c "$1"', sys.executable, code]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_that_cuts_work_off_is_status_130(traces, tmp_path):
    """It was 1, like any error, and said "Aborted!"."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    line = traces.read_bytes().splitlines()[0]
    with (
        subprocess.Popen(
            [*KP_WORKER, "score", str(pipe), "--embedder", "none"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
        pipe.open("wb") as more,
    ):
        more.write(line + b"\n")
        more.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()

    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "Aborted" not in errors


def test_ctrl_c_is_the_documented_end_of_labelling(traces, tmp_path):
    options = ["--by", "ann", "--output", str(tmp_path / "labels.jsonl"), "--port", str(free_ports(1)[0])]
    options += ["--embedder", "none"]
    with subprocess.Popen(
        [*KP_WORKER, "policy", "label", str(traces), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline().startswith("label at ")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()

    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    "command",
    [
        "score {} --embedder none",
        "score {} --embedder none --table",
        "convert {}",
        "traces list {} --embedder none",
    ],
)
def test_a_closed_pipe_ends_a_command_quietly_with_status_1(traces, command):
    """As `| head` closes it."""
    command = command.format(traces).split()
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ended = subprocess.run(
            [*KP_WORKER, *command], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )

    told = [line for line in ended.stderr.splitlines() if "convert" not in line and "trace" not in line]
    assert (ended.returncode, told) == (1, [])
