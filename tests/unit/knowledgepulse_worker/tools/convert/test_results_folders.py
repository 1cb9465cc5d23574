"""A folder of results is read as it lies there: what belongs together is joined, nothing is told twice."""

import gzip
import json
import os
import shutil
from errno import EACCES
from pathlib import Path

import pytest
from click.testing import CliRunner

from knowledgepulse_worker.cli import entry as cli
from support.conversions import FOLDER

CHAT = [
    {"role": "user", "content": "How warm is it in Oslo?"},
    {"role": "assistant", "content": "4 degrees."},
]


def trajectory(name):
    return {
        "schema_version": "ATIF-v1.8",
        "session_id": name,
        "agent": {"name": "a", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "How warm is it in Oslo?"},
            {"step_id": 2, "source": "agent", "message": "4 degrees."},
        ],
    }


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content, indent=1).encode())


def trial(folder, reward, **others):
    """Write the folder of a trial as Harbor does."""
    write(folder / "agent" / "trajectory.json", trajectory(folder.name))
    write(folder / "agent" / "sessions" / "s.jsonl", CHAT)  # the same run, as the agent itself told it
    result = {
        "trial_name": folder.name,
        "task_name": "oslo",
        "verifier_result": {"rewards": {"reward": reward}},
    }
    write(folder / "result.json", {**result, "reward_valid": True, **others})
    write(folder / "config.json", {"task": "oslo"})


@pytest.fixture
def convert(tmp_path):
    """Convert a folder; return the result, and the traces by their native ids."""

    def run(*options, command="convert", folder=tmp_path):
        result = CliRunner().invoke(cli.main, [command, str(folder), *options])
        traces = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"@context"')]
        return result, {trace["metadata"].get("native_id"): trace["metadata"] for trace in traces}

    return run


def test_a_trial_of_harbor_is_one_run_that_its_result_judges(convert, tmp_path):
    trial(tmp_path / "jobs" / "right", 1.0)
    trial(tmp_path / "jobs" / "wrong", 0.0)
    trial(tmp_path / "jobs" / "invalid", 1.0, reward_valid=False)
    write(tmp_path / "jobs" / "result.json", {"stats": {}})

    result, runs = convert()
    assert result.exit_code == 0
    assert {name: (run["success"], run["outcome_source"]) for name, run in runs.items()} == {
        "right": (True, "label"),
        "wrong": (False, "label"),
        "invalid": (True, "ended_without_error"),
    }
    assert {run["task_id"] for run in runs.values()} == {"oslo"}
    assert "1 file without a run of a known format" in result.stderr  # the job's own result


def test_each_step_of_a_trial_is_judged_by_its_own_result(convert, tmp_path):
    folder = tmp_path / "two"
    for name in ("first", "second"):
        write(folder / "steps" / name / "agent" / "trajectory.json", trajectory(name))
    steps = [
        {"step_name": name, "verifier_result": {"rewards": {"reward": reward}}}
        for name, reward in [("first", 1.0), ("second", 0.0)]
    ]
    write(folder / "result.json", {"trial_name": "two", "task_name": "oslo", "step_results": steps})

    assert {name: run["success"] for name, run in convert()[1].items()} == {"first": True, "second": False}


def test_a_trajectory_alone_is_judged_by_the_result_of_its_trial(convert, tmp_path):
    trial(tmp_path / "wrong", 0.0)
    _, runs = convert(folder=tmp_path / "wrong" / "agent" / "trajectory.json")
    assert [run["success"] for run in runs.values()] == [False]


def test_a_trial_without_a_trajectory_is_told_and_no_file_in_it_is_an_unjudged_run(convert, tmp_path):
    trial(tmp_path / "jobs" / "own", 0.0)
    (tmp_path / "jobs" / "own" / "agent" / "trajectory.json").unlink()
    trial(tmp_path / "jobs" / "right", 1.0)

    result, runs = convert()
    assert (result.exit_code, list(runs)) == (1, ["right"])
    assert f"{tmp_path / 'jobs' / 'own'}: not converted: a trial of Harbor without" in result.stderr
    _, runs = convert(folder=tmp_path / "jobs" / "own" / "agent")
    assert [run["outcome_source"] for run in runs.values()] == ["ended_without_error"]


def test_a_sample_of_nemo_agent_toolkit_is_judged_by_the_evaluators_beside_it(convert, tmp_path):
    write(
        tmp_path / "workflow_output_atif.json",
        [{"item_id": name, "trajectory": trajectory("same")} for name in ("right", "half", "raised")],
    )
    items = [("right", 1.0, None), ("half", 0.5, None), ("raised", 0.0, "the judge is away")]
    write(
        tmp_path / "exact_output.json",
        {"eval_output_items": [{"id": name, "score": score, "error": error} for name, score, error in items]},
    )
    write(tmp_path / "workflow_output.json", [{"id": "right", "generated_answer": "4 degrees."}])

    result, _ = convert()
    traces = [json.loads(line)["metadata"] for line in result.stdout.splitlines()]
    told = {each["task_id"]: (each["success"], each["outcome_source"]) for each in traces}
    assert told == {
        "right": (True, "label"),
        "half": (False, "label"),
        "raised": (True, "ended_without_error"),
    }
    assert traces[1]["rewards"] == [{"name": "exact", "value": 0.5}]


@pytest.mark.parametrize("result", [b"{", b"[]", {"stats": {}}])
def test_a_result_of_something_else_judges_nothing(convert, tmp_path, result):
    write(tmp_path / "t" / "agent" / "trajectory.json", trajectory("t"))
    write(tmp_path / "t" / "result.json", result)
    said, runs = convert()
    assert (said.exit_code, runs["t"]["outcome_source"]) == (0, "ended_without_error")


def test_a_result_that_cannot_be_read_is_told(convert, tmp_path):
    trial(tmp_path / "t", 1.0, verifier_result="good")
    said, runs = convert()
    assert (said.exit_code, runs) == (1, {})
    assert "trajectory.json: not converted: harbor_result.verifier_result: Input should be" in said.stderr


def test_every_file_at_any_depth_is_read_but_what_is_hidden_or_a_link(convert, tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    write(inside / "a" / "b" / "1.json", {"id": "deep", "messages": CHAT})
    write(inside / "2.jsonl.gz", gzip.compress(json.dumps({"id": "packed", "messages": CHAT}).encode()))
    write(inside / ".cache" / "3.json", {"id": "hidden", "messages": CHAT})
    write(inside / ".4.json", {"id": "hidden, too", "messages": CHAT})
    shutil.copy(FOLDER / "inspect.eval", inside)
    write(outside / "5.json", {"id": "outside", "messages": CHAT})
    (inside / "folder").symlink_to(outside)
    (inside / "6.json").symlink_to(outside / "5.json")
    (inside / "itself").symlink_to(inside)

    result, runs = convert(folder=inside)
    assert result.exit_code == 0
    assert {name for name, run in runs.items() if run["framework"] == "openai"} == {"deep", "packed"}
    assert [run["task_id"] for run in runs.values() if run["framework"] == "inspect"] == ["plain/s1"]


def test_files_without_a_run_are_counted_and_named_once(convert, tmp_path):
    write(tmp_path / "run.json", {"id": "run", "messages": CHAT})
    for number, content in enumerate(
        [{"config": 1}, b"a log\nof several\nlines\n", b"\0" * 5000, b"", b"PAR1", b'{"x": 1}\n{"y": 2}\n']
    ):
        write(tmp_path / "others" / str(number), content)

    result, runs = convert("--json")
    assert (result.exit_code, list(runs)) == (0, ["run"])
    assert sorted(json.loads(result.stderr)["unknown"]) == [
        str(tmp_path / "others" / str(n)) for n in range(6)
    ]
    result, _ = convert()
    assert "6 files without a run of a known format: " in result.stderr
    assert " and 3 more" in result.stderr
    assert "not converted:" not in result.stderr


def test_a_run_that_is_wrong_is_told_and_the_other_files_are_read(convert, tmp_path):
    write(tmp_path / "1.jsonl", b'{"x": 1}\n' + json.dumps({"id": "run", "messages": CHAT}).encode())
    write(tmp_path / "2.gz", gzip.compress(b"x" * 9999)[:-20])
    write(tmp_path / "3.json", {"id": "last", "messages": CHAT})
    result, runs = convert()
    assert (result.exit_code, list(runs)) == (1, ["run", "last"])
    assert "1.jsonl:1: not converted: unknown format" in result.stderr
    assert "2.gz: not converted: not a whole compressed file" in result.stderr


def test_what_cannot_be_read_is_told_once_and_the_other_files_are_read(convert, tmp_path, monkeypatch):
    """Root may read everything, so the operating system's refusal is played."""
    closed, locked = tmp_path / "1", tmp_path / "2.json"
    write(closed / "run.json", {"id": "closed", "messages": CHAT})
    write(locked, {"id": "locked", "messages": CHAT})
    write(tmp_path / "3.json", {"id": "last", "messages": CHAT})

    def refusing(call):
        def called(path, *args):
            if path in (closed, locked):
                raise PermissionError(EACCES, "Permission denied")
            return call(path, *args)

        return called

    monkeypatch.setattr("os.scandir", refusing(os.scandir))
    monkeypatch.setattr(Path, "open", refusing(Path.open))
    result, runs = convert()

    assert (result.exit_code, list(runs)) == (1, ["last"])
    for path in (closed, locked):
        assert result.stderr.count(f"{path}: cannot be read: Permission denied") == 1


def test_a_folder_without_any_run_is_an_error(convert, tmp_path):
    result, _ = convert()
    assert result.exit_code == 1
    assert f"{tmp_path}: holds no run of a known format" in result.stderr


@pytest.mark.parametrize(("command", "option"), [("score", "--embedder=none"), ("publish", "--dry-run")])
def test_a_folder_is_converted_before_it_is_scored_or_published(convert, tmp_path, command, option):
    trial(tmp_path / "right", 1.0)
    trial(tmp_path / "wrong", 0.0)
    result, _ = convert(option, command=command)
    assert result.exit_code == 0, result.stderr
    if command == "score":
        assert [json.loads(line)["success"] for line in result.stdout.splitlines()] == [True, False]
    else:
        assert "2 records would be published" in result.stderr


@pytest.mark.parametrize(("command", "option"), [("score", "--embedder=none"), ("publish", "--dry-run")])
def test_traces_in_a_folder_are_taken_as_they_are_behind_its_runs(convert, tmp_path, command, option):
    write(tmp_path / "run.json", CHAT)
    own = convert()[0].stdout.replace("kp:trace:", "kp:trace:own-")
    folder = tmp_path / "both"
    write(folder / "a.jsonl", own.encode() * 2)
    write(folder / "b.json", CHAT)
    for names, count in ((["a.jsonl", "b.json"], 3), (["a.jsonl"], 2)):
        result, _ = convert(option, command=command, folder=folder)
        assert (result.exit_code, "of a known format" in result.stderr) == (0, False), names
        if command == "score":
            ids = [json.loads(line)["id"] for line in result.stdout.splitlines()]
            assert [each.startswith("kp:trace:own-") for each in ids] == [False, True, True][3 - count :]
        else:
            assert f"{count} records would be published" in result.stderr
        (folder / "b.json").unlink(missing_ok=True)
    result, _ = convert(folder=folder)
    assert (result.exit_code, result.stdout) == (1, "")
