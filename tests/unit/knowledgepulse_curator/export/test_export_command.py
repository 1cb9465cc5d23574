"""Datasets of files of scored traces: read by others' libraries, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from knowledgepulse_curator.export.dataset_rows import Files
from knowledgepulse_worker.cli.entry import main
from knowledgepulse_worker.records.decode import with_quality_score

FOREIGN = "not a scored trace written by a worker or by `kp-worker score --traces`"
OPTIONS = ("--not-cleaned", "--embedder", "lexical", "--also", "messages", "--also", "atif", "--keep-tail")


@pytest.fixture
def traces(real_traces):
    """Return so many real traces that each split has some."""
    return real_traces[::3]


@pytest.fixture
def scored(tmp_path, traces):
    """Return a file of scored traces."""
    file = tmp_path / "scored.jsonl"
    lines = [with_quality_score(line, number / 60) for number, line in enumerate(traces)]
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file


def export(*arguments):
    result = CliRunner().invoke(main, ["export", *map(str, arguments)])
    message = result.exception if isinstance(result.exception, Exception) else ""
    progress = re.compile(r"^\S+: [\d,]+ of [\d,?]+\n", re.MULTILINE)  # of an export that takes long
    return result.exit_code, progress.sub("", f"{result.stderr}{result.stdout}{message}")


def said_by(*arguments):
    """Return what an export says that succeeds."""
    status, said = export(*arguments)
    assert status == 0, said
    return said


def refusal(*arguments):
    """Return the line of an export that is refused."""
    status, said = export(*arguments)
    assert (status, said.count("\n")) == (1, 1), said
    return said


@pytest.fixture
def dataset(tmp_path, scored):
    assert said_by(tmp_path / "set", scored, *OPTIONS).endswith("export 1: 52 of 52 records exported\n")
    return tmp_path / "set"


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def few(real_traces):
    """Return four scored traces, as objects."""
    return [json.loads(with_quality_score(line, 0.5)) for line in real_traces[:4]]


@pytest.fixture
def written(tmp_path):
    """Return a function that writes scored traces to a file."""

    def write_scored(*rows):
        write(tmp_path / "scored.jsonl", rows)
        return tmp_path / "scored.jsonl"

    return write_scored


def tables(folder):
    """Return the rows of a dataset's tables."""
    files = (folder / "data").rglob("*.parquet")
    return [row for path in files for row in parquet.read_table(path).to_pylist()]


@pytest.fixture
def loaded(tmp_path):
    """Return a function that loads a folder with `datasets`, which keeps a cache between the calls."""
    from datasets import load_dataset

    return lambda folder, **options: load_dataset(str(folder), cache_dir=str(tmp_path / "cache"), **options)


@pytest.mark.slow
def test_datasets_loads_every_format_by_split(dataset, loaded, traces):
    tables = loaded(dataset)
    assert sum(split.num_rows for split in tables.values()) == len(traces)
    ids = {split: set(table["id"]) for split, table in tables.items()}
    assert {*ids} == {"train", "validation", "test"}
    assert len(tables["train"][0]["vector"]) == 384
    for name, key in (("messages", "id"), ("atif", "session_id")):
        assert {split: set(table[key]) for split, table in loaded(dataset / name).items()} == ids


@pytest.mark.parametrize("weights", [(), ("--weights",)])
def test_datasets_loads_lines_as_they_are_whichever_file_is_first(tmp_path, scored, loaded, weights):
    """It would take the types of the first file for all: without calls, or with a tool of another schema."""
    traces, thought = rows_of(scored)[:3], {"step_id": 0, "type": "thought", "content": "Done"}
    for trace, name in zip(traces, "abc", strict=True):
        schema = {"type": "object", "properties": {name: {"enum": [name]}}}
        trace["task"] = {"objective": f"Do {name}", "tools": [{"name": name, "parameters": schema}]}
        given = {name: {"deep": None}, "day": "2026-01-31"}
        trace["steps"] = [
            thought,
            {"step_id": 1, "type": "tool_call", "tool": {"name": name}, "input": given},
        ]
        trace["metadata"]["task_domain"] = name
    traces[0] |= {"task": {"objective": "Do it"}, "steps": [thought]}
    write(scored, traces)
    config = tmp_path / "worker.toml"
    config.write_text("".join(f"[policy.domains.{name}]\nthreshold = 0.0\n" for name in "abc"))
    options = (*OPTIONS, "--arguments", "object", "--shares", "0", "0", "--config", config, *weights)

    assert said_by(tmp_path / "set", scored, *options) == "export 1: 3 of 3 records exported\n"

    for name in ("messages", "atif"):
        files = sorted((tmp_path / "set" / name).rglob("*.jsonl"))
        written = [row for path in files for row in rows_of(path)]
        read = loaded(tmp_path / "set" / name, split="train")
        assert len(files) == 3
        assert [{key: value for key, value in row.items() if value is not None} for row in read] == written


def test_datasets_loads_what_a_later_export_added_and_no_folder_of_the_same_name(
    tmp_path, scored, loaded, monkeypatch
):
    """Its cache knows a folder by its name and its card."""
    lines = scored.read_bytes().splitlines(keepends=True)

    def ids(folder, *more):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        with Path("scored.jsonl").open("ab") as file:
            file.writelines(more)
        said_by("dataset", "scored.jsonl", *OPTIONS, "--shares", "0", "0")
        found = {*loaded("dataset", split="train")["id"]}
        assert {*loaded("dataset/messages", split="train")["id"]} == found
        return found

    wanted = [json.loads(line)["id"] for line in lines]
    assert ids("one", lines[0]) == {wanted[0]}
    assert ids("one", lines[1]) == {*wanted[:2]}
    assert ids("other", lines[2]) == {wanted[2]}


def test_datasets_finds_nothing_in_a_dataset_without_traces(tmp_path, scored, loaded):
    """It would take the manifest for the data."""
    from datasets.exceptions import DataFilesNotFoundError

    assert "0 of 52 records exported" in said_by(tmp_path / "set", scored, *OPTIONS, "--min-score", "1")
    assert "messages" not in (tmp_path / "set/README.md").read_text()
    with pytest.raises(DataFilesNotFoundError):
        loaded(tmp_path / "set")


def test_messages_end_with_the_assistant_s_last_unless_their_tail_is_kept(tmp_path, scored):
    """Trainers refuse or drop the others; the table and the trajectories have all traces whole."""
    thought, reply = {"type": "thought", "content": "Done"}, {"type": "observation", "content": "Thank you"}
    traces = rows_of(scored)[:3]
    for trace, steps in zip(traces, ([thought], [thought, reply], [reply]), strict=True):
        trace["steps"] = [{"step_id": number, **step} for number, step in enumerate(steps)]
    write(scored, traces)
    options = ("--not-cleaned", "--embedder", "none", "--also", "messages", "--also", "atif")

    def lengths(folder, name, member):
        files = (tmp_path / folder / name).rglob("*.jsonl")
        return sorted(len(row[member]) for path in files for row in rows_of(path))

    assert said_by(tmp_path / "cut", scored, *options) == (
        "export 1: 3 of 3 records exported; in 1, messages after the assistant's last are cut "
        "(`--keep-tail` keeps them); 1 not in `messages`: the assistant says nothing\n"
    )
    whole = said_by(tmp_path / "kept", scored, *options, "--keep-tail")
    assert whole == "export 1: 3 of 3 records exported\n"
    assert (lengths("cut", "messages", "messages"), lengths("cut", "atif", "steps")) == ([2, 2], [2, 2, 3])
    assert lengths("kept", "messages", "messages") == [2, 2, 3]
    card = (tmp_path / "cut/README.md").read_text()
    assert "In 1 trace, messages after the assistant's last are cut." in card


def test_a_dataset_of_a_former_release_is_continued_only_with_its_tail(tmp_path, scored):
    """Its manifest does not have the option; a dataset without messages is not asked."""
    lines = scored.read_bytes().splitlines(keepends=True)
    for name, options in (("messages", ("--also", "messages", "--keep-tail")), ("table", ())):
        scored.write_bytes(lines[0])
        said_by(tmp_path / name, scored, "--embedder", "none", *options)
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        assert manifest["choices"].pop("without_tail") is False
        del manifest["choices"]["arguments"]
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
        scored.write_bytes(b"".join(lines[:2]))
        said_by(tmp_path / name, scored, "--embedder", "none", *options)
    changed = refusal(tmp_path / "messages", scored, "--embedder", "none", "--also", "messages")
    assert "without_tail was False, is True" in changed


def test_other_libraries_read_the_table(dataset, traces):
    import duckdb
    import pandas as pd

    files = f"{dataset}/data/**/*.parquet"
    wanted = {json.loads(line)["id"]: with_quality_score(line, 0) for line in traces}
    for rows in (
        pd.read_parquet(dataset / "data")[["id", "trace"]].to_numpy().tolist(),
        duckdb.sql(f"select id, trace from '{files}'").fetchall(),
    ):
        assert {name: with_quality_score(trace.encode(), 0) for name, trace in rows} == wanted


def test_lines_that_are_appended_are_exported_next(dataset, scored, real_traces):
    assert said_by(dataset, scored, *OPTIONS) == "no new records to export\n"
    with scored.open("ab") as file:
        file.write(with_quality_score(real_traces[0].replace(b"kp:trace:", b"kp:trace:again-"), 0.5) + b"\n")
        file.write(b"{}\n[]\n")
    added = said_by(dataset, scored, *OPTIONS)
    assert added == f"export 2: 1 of 3 records exported; 2 left out: {FOREIGN}\n"


def test_selections(tmp_path, scored, traces):
    """By domain and score; the best of each group, of which later exports choose others."""
    decoded = [json.loads(line) for line in traces]
    code = {trace["id"] for trace in decoded if trace["metadata"]["task_domain"] == "code"}

    def ids(name, *options):
        said = said_by(tmp_path / name, scored, *OPTIONS, *options)
        files = (tmp_path / name).glob("messages/**/*.jsonl")
        return {row["id"] for file in files for row in rows_of(file)}, said

    found, said = ids("code", "--domain", "code")
    assert found == code != set()
    assert f"{len(traces) - len(code)} left out: not in a domain of `--domain`" in said
    scores = {trace["id"]: number / 60 for number, trace in enumerate(decoded)}
    assert ids("least", "--min-score", "0.5")[0] == {name for name, score in scores.items() if score >= 0.5}
    found, said = ids("best", "--best", "10", "--embedder", "none")
    last = {trace["task"]["objective"]: trace["id"] for trace in decoded}
    assert found == {*sorted(last.values(), key=scores.get)[-10:]}
    assert "42 left out: not among the best" in said
    groups, _ = ids("groups", "--best", "10", "--embedder", "lexical")
    assert len(groups) == 10
    assert groups != found


@pytest.mark.slow
def test_an_export_that_the_disk_cut_off_is_completed_to_the_same_bytes(tmp_path, scored, dataset):
    """The limit of a file's size stands for a full disk: the error comes from the same calls."""
    command = [sys.executable, "-m", "knowledgepulse_worker.cli.entry", "export"]
    small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))  # noqa: E731
    done = subprocess.run(
        [*command, str(tmp_path / "cut"), str(scored), *OPTIONS],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=small,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {tmp_path / 'cut'}: cannot be written: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "cut/manifest.json").exists()
    assert said_by(tmp_path / "cut", scored, *OPTIONS) == "export 1: 52 of 52 records exported\n"
    assert tree(tmp_path / "cut") == tree(dataset)


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_folders_that_are_no_dataset_or_another_one_are_refused(tmp_path, scored, dataset):
    before = tree(dataset)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    said = refusal(tmp_path / "full", scored, *OPTIONS)
    assert "contains files, but no dataset of `kp-worker export`" in said
    assert {path.name for path in (tmp_path / "full").iterdir()} == {"notes.txt", ".lock"}

    said = refusal(tmp_path / "full/notes.txt/set", scored, *OPTIONS)
    assert f"{tmp_path}/full/notes.txt/set: cannot be written: Not a directory" in said

    said = refusal(dataset, scored, *OPTIONS, "--seed", "1")
    assert "contains a different dataset: seed was 0, is 1" in said

    other = tmp_path / "other.jsonl"
    other.write_bytes(scored.read_bytes()[10:])
    assert "contains a different dataset: " in refusal(dataset, other, *OPTIONS)

    scored.write_bytes(b"".join(scored.read_bytes().splitlines(keepends=True)[:9]))
    said = refusal(dataset, scored, *OPTIONS)
    assert f"{scored} ends at offset 9, but the last export read up to offset 52" in said
    assert tree(dataset) == before

    for content in ("{}", '{"files":' + "[" * 10**5):
        (dataset / "manifest.json").write_text(content)
        said = refusal(dataset, scored, *OPTIONS)
        assert "manifest.json: was not written by `kp-worker export`: " in said


@pytest.mark.parametrize(
    ("options", "left_out", "why"),
    [
        ((), 0, "; in 2, the SDK's cleaner finds secrets or personal data (`--redact` removes them)"),
        (("--redact",), 0, ""),
        (
            ("--for", "network"),
            2,
            "; 2 left out: the SDK's cleaner finds something (`--redact` redacts them)",
        ),
        (("--for", "network", "--redact"), 0, ""),
        (("--for", "network", "--not-cleaned"), 0, ""),
        (("--not-cleaned", "--scan-secrets"), 2, "; 2 left out: `--scan-secrets` finds a key"),
        (("--redact", "--scan-secrets"), 1, "; 1 left out: `--scan-secrets` finds a key"),
    ],
)
@pytest.mark.slow
def test_what_is_found_in_a_trace_keeps_it_inside(tmp_path, few, written, caplog, options, left_out, why):
    """The SDK's cleaning knows telephone numbers, and the scan more kinds of keys."""
    texts = ("Fix the build", "Call me at 555-123-4567", "It is AKIA" + "Q" * 16, "glpat-" + "a1" * 10)
    for trace, text in zip(few, texts, strict=True):
        trace |= {
            "task": {"objective": text},
            "steps": [{"step_id": 0, "type": "thought", "content": "Done"}],
        }
        trace["metadata"] |= {"visibility": "network", "privacy_level": "aggregated"}
        trace["outcome"]["result_summary"] = ""
    arguments = (tmp_path / "set", written(*few), "--embedder", "lexical", *options)

    assert said_by(*arguments) == f"export 1: {4 - left_out} of 4 records exported{why}\n"
    assert caplog.messages == []
    held = {text for text in texts[1:3] if "--redact" in options}
    assert not held & {row["objective"] for row in tables(tmp_path / "set")}
    assert said_by(*arguments, "--check") == ""


def test_the_scan_reads_members_that_stand_twice(tmp_path, real_traces):
    """The dataset has the trace's own bytes, with both."""
    scored, line = tmp_path / "scored.jsonl", with_quality_score(real_traces[0], 0.5)
    key = b'{"note": "glpat-' + b"a1" * 10 + b'", "note": "none", '
    scored.write_bytes(line.replace(b"{", key, 1) + b"\n")

    options = ("--embedder", "lexical", "--not-cleaned", "--scan-secrets")

    said = said_by(tmp_path / "set", scored, *options)

    assert "0 of 1 records exported; 1 left out: `--scan-secrets` finds a key" in said


def test_a_trace_that_must_not_leave_is_counted_whatever_else_it_holds(tmp_path, few):
    """Python's own parser refuses an integer of so many digits."""
    few[0]["metadata"]["visibility"] = "private"
    scored = tmp_path / "scored.jsonl"
    scored.write_text(f'{json.dumps(few[0])[:-1]}, "more": {"9" * 5000}}}\n')

    assert said_by(tmp_path / "set", scored, "--embedder", "lexical", "--for", "network") == (
        "export 1: 0 of 1 records exported; 1 left out: its visibility does not permit export: private "
        "(without `--for network`, the dataset is for use inside and has all)\n"
    )


def test_a_dataset_for_use_inside_has_what_is_private(tmp_path, few, written):
    """What a converter makes is private: without this, the default path ends in an empty dataset."""
    levels = [("private", "private"), ("org", "federated"), ("network", "aggregated"), ("network", "private")]
    for trace, (visibility, privacy_level) in zip(few, levels, strict=True):
        trace["metadata"] |= {"visibility": visibility, "privacy_level": privacy_level}
    arguments = (written(*few), "--embedder", "none", "--not-cleaned")

    assert said_by(tmp_path / "inside", *arguments) == "export 1: 4 of 4 records exported\n"
    said = said_by(tmp_path / "network", *arguments, "--for", "network")

    assert "1 of 4 records exported" in said
    assert "1 left out: its privacy level does not permit export: private" in said
    for visibility in ("private", "org"):
        assert f"1 left out: its visibility does not permit export: {visibility}" in said
    assert "**For use inside the organization only**" in (tmp_path / "inside/README.md").read_text()
    assert "exported: network." in (tmp_path / "network/README.md").read_text()
    said = refusal(tmp_path / "inside", *arguments, "--for", "network")
    assert "audience was inside, is network" in said


def test_what_score_wrote_is_exported_without_kafka(tmp_path, real_traces):
    """With the trace, the line has all that a record has; without it, the error says what to do."""
    traces, scored, bare = tmp_path / "traces.jsonl", tmp_path / "scored.jsonl", tmp_path / "bare.jsonl"
    traces.write_bytes(b"\n".join(real_traces[:20]))
    (tmp_path / "worker.toml").write_text("[policy]\nthreshold = 0.5\n")
    config = ("--embedder", "lexical", "--config", str(tmp_path / "worker.toml"))
    for file, options in ((scored, ["--traces"]), (bare, [])):
        file.write_text(CliRunner().invoke(main, ["score", str(traces), *config, *options]).stdout)
    lines = {line["id"]: line for line in rows_of(scored)}
    contributed = {name for name, line in lines.items() if line["decision"] == "contribute"}
    assert 0 < len(contributed) < 20

    said = said_by(tmp_path / "set", scored, *config, "--not-cleaned")

    assert said == (
        f"export 1: {len(contributed)} of 20 records exported; "
        f"{20 - len(contributed)} left out: rejected when it was scored (`--policy` decides again)\n"
    )
    exported = tables(tmp_path / "set")
    assert {row["id"] for row in exported} == contributed
    for row in exported:
        line = lines[row["id"]]
        assert (row["score"], row["novelty"], row["policy"]) == (
            line["quality_score"],
            line["novelty"],
            line["policy"],
        )
        assert json.loads(row["trace"])["metadata"]["quality_score"] == line["quality_score"]
    everything = tmp_path / "all.toml"
    everything.write_text("[policy]\nthreshold = 0.0\n")
    said = said_by(tmp_path / "again", scored, *config, "--not-cleaned", "--policy", everything)
    assert said == "export 1: 20 of 20 records exported\n"
    without = f"{bare}:1: a score without its trace; `kp-worker score --traces` prints both"
    assert without in refusal(tmp_path / "bare", bare, *config)


@pytest.mark.parametrize(
    ("created_at", "day"),
    [
        ("1970-01-01T00:00:00.000Z", "2026-03-25"),  # what converters write that know no time
        ("2025-12-31T23:59:59.999Z", "2025-12-31"),
        ("2025-12-31T23:59:59.999-05:00", "2026-01-01"),
    ],
)
def test_a_trace_in_a_file_has_its_own_day_or_else_that_of_the_file(tmp_path, few, written, created_at, day):
    few[0]["metadata"]["created_at"] = created_at
    scored = written(few[0])
    changed = datetime(2026, 3, 25, 12, tzinfo=UTC).timestamp()
    os.utime(scored, (changed, changed))

    said_by(tmp_path / "set", scored, "--embedder", "none")

    (table,) = (tmp_path / "set/data").rglob("*.parquet")
    assert table.parent.name == day
    (row,) = tables(tmp_path / "set")
    assert row["timestamp"].date().isoformat() == day


def test_an_export_that_was_killed_keeps_the_days_that_it_planned(tmp_path, few, written, monkeypatch):
    """The file may have grown since."""
    few[0]["metadata"]["created_at"] = "1970-01-01T00:00:00.000Z"
    scored, folder = written(few[0]), tmp_path / "set"
    os.utime(scored, (86_400, 86_400))
    with monkeypatch.context() as killed:
        killed.setattr(Files, "write", Mock(side_effect=OSError("killed")))
        assert export(folder, scored, "--embedder", "none")[0] != 0
    os.utime(scored, (864_000, 864_000))

    said_by(folder, scored, "--embedder", "none")

    (table,) = (folder / "data").rglob("*.parquet")
    assert table.parent.name == "1970-01-02"


def test_a_redaction_function_that_fails_leaves_the_trace_out(tmp_path, few, written, monkeypatch):
    (tmp_path / "privacy.py").write_text("def redact(trace):\n    raise ValueError(trace)\n")
    (tmp_path / "worker.toml").write_text(
        'topics.redacted = "copies"\nredaction.function = "privacy:redact"\n'
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = ("--embedder", "none", "--redact", "--config", tmp_path / "worker.toml")

    said = said_by(tmp_path / "set", written(few[0]), *options)

    assert said == "export 1: 0 of 1 records exported; 1 left out: no redacted copy could be made: raised\n"


@pytest.mark.parametrize("damage", ["no privacy level", "nested too deep"])
def test_what_is_no_trace_is_left_out_before_it_is_cleaned(tmp_path, few, damage):
    few[0]["metadata"] |= {"visibility": "network", "privacy_level": "aggregated"}
    if damage == "no privacy level":
        del few[0]["metadata"]["privacy_level"]
    nested = "[" * 450 + "]" * 450 if damage == "nested too deep" else "0"
    scored = tmp_path / "scored.jsonl"
    scored.write_text(f'{json.dumps(few[0])[:-1]}, "more": {nested}}}\n')

    said = said_by(tmp_path / "set", scored, "--embedder", "lexical")

    assert said == f"export 1: 0 of 1 records exported; 1 left out: {FOREIGN}\n"


def test_a_check_finds_what_was_changed_since(dataset, scored):
    assert said_by(dataset, scored, *OPTIONS, "--check") == ""
    table = next(dataset.glob("data/test/**/*.parquet"))
    content = table.read_bytes()
    table.write_bytes(content[:-4])
    with scored.open("ab") as file:
        file.write(b"[]\n")
    assert f"{table}: is missing or damaged" in refusal(dataset, scored, *OPTIONS)
    table.write_bytes(content)

    lines = next(dataset.glob("messages/test/**/*.jsonl"))
    lines.write_bytes(lines.read_bytes()[1:])
    (dataset / "README.md").unlink()
    scored.write_bytes(scored.read_bytes().replace(b'"steps"', b' "steps"', 1))
    status, said = export(dataset, scored, *OPTIONS, "--check")
    assert status == 1
    assert f"{lines.relative_to(dataset)}: differs from its hash in manifest.json" in said
    assert "README.md: is missing" in said
    assert f"{scored}:1: differs from its record in {scored}" in said
    assert table.name not in said.replace("00001.jsonl", "")


@pytest.fixture
def cut_off(tmp_path, monkeypatch):
    """Return a function that cuts off an export, changes its plan, and exports again."""

    def full(_self):
        raise OSError("no space")

    def cut(alter, *arguments):
        with monkeypatch.context() as patched:
            patched.setattr(Files, "write", full)
            assert export(tmp_path / "cut", *arguments)[0] == 1
        path = tmp_path / "cut/.plan"
        plan = msgspec.msgpack.decode(path.read_bytes())
        alter(plan)
        path.write_bytes(msgspec.msgpack.encode(plan))
        before = {*tmp_path.rglob("*")}
        said = refusal(tmp_path / "cut", *arguments)
        assert {*tmp_path.rglob("*")} == before
        return said

    return cut


@pytest.mark.parametrize(
    "alter",
    [
        lambda plan: plan["rows"][0].__setitem__(3, "../../../escaped"),
        lambda plan: plan["rows"][0].__setitem__(3, "train/../../../escaped"),
        lambda plan: plan["rows"][0].__setitem__(4, b"\0"),
        lambda plan: plan["export"].update(number=7),
        lambda plan: plan["export"].update(number=-1),
        lambda plan: plan["export"]["offsets"].update({"/etc/passwd": [0, 1]}),
        lambda plan: next(iter(plan["export"]["offsets"].values())).__setitem__(1, 2**62),
        lambda plan: plan["choices"].update(not_cleaned=False),
    ],
)
def test_a_plan_that_others_may_have_written_is_not_trusted(cut_off, tmp_path, scored, alter):
    scored.write_bytes(b"".join(scored.read_bytes().splitlines(keepends=True)[:10]))
    assert cut_off(alter, scored, *OPTIONS).startswith(f"Error: {tmp_path}/cut")


def test_a_plan_lets_nothing_leave_that_must_not(cut_off, tmp_path, real_traces):
    trace = json.loads(real_traces[0]) | {
        "task": {"objective": "Call me at 555-123-4567"},
        "id": "kp:trace:x",
    }
    scored = tmp_path / "scored.jsonl"
    lines = [with_quality_score(line, 0.5) for line in (*real_traces[1:9], json.dumps(trace).encode())]
    scored.write_bytes(b"\n".join(lines))

    def add(plan):
        row = plan["rows"][0]
        plan["rows"].append([row[0], 8, *row[2:]])

    said = cut_off(add, scored, "--embedder", "lexical", "--for", "network")
    assert f"{scored}/8: has changed since the export was planned" in said


def test_a_manifest_names_no_file_outside_of_the_dataset(dataset, scored):
    manifest = json.loads((dataset / "manifest.json").read_text())
    for path in ("../outside", "/etc/passwd", "data/train/../../../outside", "data/\0"):
        files = {path: {"sha256": "0" * 64, "size": 1}}
        (dataset / "manifest.json").write_text(json.dumps(manifest | {"files": files}))
        said = refusal(dataset, scored, *OPTIONS, "--check")
        assert "its manifest names a file outside of the dataset" in said


@pytest.mark.parametrize("name", ["data", ".staging", ".lock", "manifest.json"])
def test_a_link_does_not_lead_out_of_a_dataset(tmp_path, scored, name):
    folder, outside = tmp_path / "set", tmp_path / "outside"
    folder.mkdir()
    (outside / "kept").mkdir(parents=True)
    (folder / name).symlink_to(outside if name != ".lock" else outside / "lock")
    refusal(folder, scored, *OPTIONS)
    assert [path.name for path in outside.rglob("*")] == ["kept"]


def test_a_table_that_is_none_is_told(dataset, scored):
    manifest = json.loads((dataset / "manifest.json").read_text())
    name = next(name for name in manifest["files"] if name.startswith("data/"))
    with scored.open("ab") as file:
        file.write(b"[]\n")
    for content in (b"", b"PAR1", (dataset / "README.md").read_bytes()):
        (dataset / name).write_bytes(content)
        manifest["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        (dataset / "manifest.json").write_text(json.dumps(manifest))
        for options in ((), ("--check",)):
            said = refusal(dataset, scored, *OPTIONS, *options)
            assert f"{name}: was not written by `kp-worker export`: " in said


@pytest.mark.parametrize("number", ["1e999", "9" * 5000])
@pytest.mark.parametrize("also", ["messages", "atif"])
def test_what_a_trace_cannot_become_leaves_that_trace_out(tmp_path, few, number, also):
    few[1]["steps"].append({"step_id": 0, "type": "tool_call", "tool": {"name": "t"}, "input": {"n": "XX"}})
    scored = tmp_path / "scored.jsonl"
    scored.write_text("".join(json.dumps(line).replace('"XX"', number) + "\n" for line in few))
    options = ("--embedder", "none", "--not-cleaned")
    converted = (*options, "--also", also, *(["--keep-tail"] if also == "messages" else []))

    why = "a number that `--also` cannot convert (without `--also`, the table has them)"
    told = f"export 1: 3 of 4 records exported; 1 left out: {why}\n"
    assert said_by(tmp_path / "set", scored, *converted) == told
    assert said_by(tmp_path / "set", scored, *converted) == "no new records to export\n"
    assert said_by(tmp_path / "table", scored, *options) == "export 1: 4 of 4 records exported\n"


def test_a_domain_of_any_length_is_a_folder(tmp_path, few, written):
    """Two that differ at their ends have two."""
    domains = ("\u00e4" * 100_000, "\u00e4" * 100_000 + "b")
    for trace, domain in zip(few, domains, strict=False):
        trace["metadata"]["task_domain"] = domain
    policy = tmp_path / "worker.toml"
    policy.write_text("".join(f"[policy.domains.{json.dumps(name)}]\nthreshold = 0.5\n" for name in domains))
    options = ("--embedder", "none", "--not-cleaned", "--config", policy)

    said = said_by(tmp_path / "set", written(*few[:2]), *options)

    assert said == "export 1: 2 of 2 records exported\n"
    assert len({path.parent.parent for path in (tmp_path / "set/data").rglob("*.parquet")}) == 2


@pytest.mark.slow
def test_a_scan_that_does_not_end_leaves_the_trace_out(tmp_path, few, written, monkeypatch):
    """Detectors look at a line of slashes for a time that is quadratic in its length."""
    monkeypatch.setattr("knowledgepulse_curator.export.secret_scan.SCAN_LIMIT", 2.0)
    few[0]["task"]["objective"] = "/" * 300_000
    few[1]["task"]["objective"] = "It is AKIA" + "Q" * 16
    options = ("--embedder", "none", "--not-cleaned", "--scan-secrets")

    told = (
        "1 of 3 records exported; 1 left out: `--scan-secrets` finds a key; "
        "1 left out: `--scan-secrets` did not finish in time\n"
    )
    assert told in said_by(tmp_path / "set", written(*few[:3]), *options)


def test_a_new_dataset_is_the_owner_s_alone_and_a_changed_mode_is_kept(tmp_path, dataset, scored):
    """It may hold traces that are private; who shares it says so."""
    folder = tmp_path / "set"
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o600"}
    assert oct(folder.stat().st_mode & 0o777) == "0o700"

    folder.chmod(0o755)
    for file in files:
        file.chmod(0o644)
    with scored.open("ab") as more:
        more.write(scored.read_bytes().replace(b"kp:trace:", b"kp:trace:2"))
    said_by(folder, scored, *OPTIONS)

    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o644"}
    assert oct(folder.stat().st_mode & 0o777) == "0o755"
