"""Databases of agents, with rows that runs of the programs wrote, are read as the programs' exports are."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import cramjam
import pytest

from knowledgepulse_convert import AUTO, ConversionError, Options
from knowledgepulse_worker.tools.convert import databases
from knowledgepulse_worker.tools.convert.conversion_options import Selection
from knowledgepulse_worker.tools.convert.databases import COPIES, DATABASES, convert_database

ROWS = Path(__file__).parents[4] / "data/databases"
PROGRAMS = [file.stem for file in sorted(ROWS.glob("*.sql"))]
INSERT = (
    "INSERT INTO transcript_events (session_id, seq, {}, event_utf8_bytes)"
    " SELECT session_id, ?, ?, ? FROM session_windows"
)
SESSIONS = {"opencode": "session", "hermes": "sessions", "openclaw": "session_windows"}


def made(path, program, *statements):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((ROWS / f"{program}.sql").read_text("utf-8"))
        for statement, *values in statements:
            connection.execute(statement, values)
        connection.commit()
    return path


def told(path, format_name=AUTO):
    return [outcome for _, outcome in convert_database(str(path), format_name, Options())]


def steps_of(outcome):
    return [(step.type, (step.tool and step.tool.name) or step.content) for step in outcome.trace.steps]


def problem_of(path, **options):
    (error,) = told(path, **options)
    assert isinstance(error, ConversionError)
    return str(error)


def test_every_program_has_rows_of_a_run():
    assert {database.format for database in DATABASES} == set(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_session_is_read_with_its_calls_results_and_answer(tmp_path, program):
    (outcome,) = told(made(tmp_path / "db", program))

    assert outcome.trace.task.objective == "How much does the loaf weigh, and how much does the tin weigh?"
    assert outcome.trace.metadata.framework == program
    calls = [step.tool.name for step in outcome.trace.steps if step.type == "tool_call"]
    assert len(calls) == 2
    assert [step.content.strip() for step in outcome.trace.steps if step.type == "observation"] == [
        "812 g",
        "95 g",
    ]
    assert outcome.trace.steps[-1].content == "The loaf weighs 812 g, and the tin 95 g."


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_nothing_changes_in_the_folder_of_an_agent(tmp_path, program, mode):
    path = made(tmp_path / "db", program)
    with closing(sqlite3.connect(path)) as agent:
        agent.execute(f"PRAGMA journal_mode = {mode}")
        agent.execute(f"UPDATE {SESSIONS[program]} SET rowid = rowid")
        agent.commit()
        before = {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in tmp_path.iterdir()}

        (outcome,) = told(path)

        assert len(steps_of(outcome)) == 7
        assert {f.name: (f.stat().st_size, f.stat().st_mtime_ns) for f in tmp_path.iterdir()} == before
        agent.execute(f"UPDATE {SESSIONS[program]} SET rowid = rowid")  # no lock is left
        agent.commit()


WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
connection.execute("PRAGMA journal_mode = wal")
template = connection.execute("SELECT * FROM sessions").fetchone()
messages = connection.execute("SELECT * FROM messages").fetchall()
holes = lambda row: ", ".join("?" * len(row))
print("writing", flush=True)
number = 0
while True:  # until it is killed
    number += 1
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"INSERT INTO sessions VALUES ({holes(template)})", (f"run {number}", *template[1:]))
    for message in messages:
        row = list(message)
        row[0], row[1] = number * 100 + row[0], f"run {number}"
        connection.execute(f"INSERT INTO messages VALUES ({holes(row)})", row)
    connection.execute("COMMIT")
    time.sleep(0.01)
"""


def test_an_agent_that_writes_is_not_disturbed_and_each_run_is_whole_or_absent(tmp_path):
    path = made(tmp_path / "state.db", "hermes")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as agent:
        try:
            assert agent.stdout.readline() == "writing\n"
            seen = [told(path) for _ in range(5)]
            assert agent.poll() is None, agent.stderr.read()
        finally:
            agent.kill()

    read = [outcomes for outcomes in seen if not isinstance(outcomes[0], ConversionError)]
    assert read, "every copy was of a database in use"
    for outcomes in read:
        assert {len(steps_of(outcome)) for outcome in outcomes} == {7}
    assert len(read[-1]) > 1


def test_a_database_that_never_rests_is_in_use(tmp_path, monkeypatch):
    path = made(tmp_path / "db", "hermes")
    (tmp_path / "db-wal").write_bytes(b"log")
    states = iter(range(2 * COPIES))
    monkeypatch.setattr(databases, "_state", lambda path: [next(states), None, None])

    assert problem_of(path).startswith(f"in use: it changed during each of {COPIES} copies")


def test_a_long_entry_is_unpacked_and_one_that_cannot_be_is_a_suspect_loss(tmp_path):
    asked = {"role": "user", "content": [{"type": "text", "text": "What does it weigh?" * 1000}]}
    text = json.dumps({"type": "message", "id": "0", "parentId": None, "message": asked}).encode()
    said = {"role": "assistant", "content": [{"type": "text", "text": "95 g."}]}
    answer = json.dumps({"type": "message", "id": "1", "parentId": "0", "message": said})
    rows = [
        (INSERT.format("event_zstd"), 97, b"broken", 6),
        (INSERT.format("event_zstd"), 98, bytes(cramjam.zstd.compress(text)), len(text)),
        (INSERT.format("event_json"), 99, answer, 0),
    ]

    (outcome,) = told(made(tmp_path / "db", "openclaw", *rows))

    assert outcome.trace.task.objective == "What does it weigh?" * 1000
    assert [loss.suspect for path, loss in outcome.losses.items() if path == "unreadable"] == [True]


def test_what_a_user_took_back_is_no_part_of_the_run(tmp_path):
    told_again = [
        {"role": "user", "content": "What does the tin weigh?"},
        {"role": "assistant", "content": [{"type": "text", "text": "95 g."}], "stopReason": "stop"},
    ]
    rows = [
        (
            INSERT.format("event_json"),
            90 + number,
            json.dumps({"type": "message", "id": str(number), "parentId": parent, "message": message}),
            0,
        )
        for number, (parent, message) in enumerate(zip([None, "0"], told_again, strict=True))
    ]

    (outcome,) = told(made(tmp_path / "db", "openclaw", *rows))

    assert outcome.trace.task.objective == "What does the tin weigh?"
    assert steps_of(outcome) == [("thought", "95 g.")]


def test_another_schema_is_named_beside_the_one_that_is_known(tmp_path):
    path = made(tmp_path / "db", "hermes", ("ALTER TABLE messages RENAME COLUMN tool_calls TO calls",))

    assert problem_of(path) == (
        "Hermes Agent's database in another form than that of its release 0.19: the table messages lacks "
        "tool_calls; let Hermes Agent export the sessions"
    )


def test_a_database_of_another_program_is_refused_by_what_it_is(tmp_path):
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        connection.execute("CREATE TABLE tokens (secret)")

    assert problem_of(tmp_path / "db").startswith("a database of SQLite of another program than OpenCode, ")


def test_a_damaged_database_is_refused_and_nothing_else_stops(tmp_path):
    path = made(tmp_path / "db", "opencode")
    path.write_bytes(path.read_bytes()[:5000])

    assert problem_of(path).startswith("a damaged database of SQLite: ")


def test_another_format_than_the_database_has_is_refused(tmp_path):
    path = made(tmp_path / "db", "opencode")

    assert problem_of(path, format_name="openai") == "OpenCode's database, whose format is opencode"


def test_a_folder_with_a_database_is_converted(tmp_path, kp_worker):
    made(tmp_path / "state.db", "hermes")

    result = kp_worker("convert", tmp_path)

    assert result.exit_code == 0
    assert json.loads(result.stdout)["metadata"]["framework"] == "hermes"


LATER = (
    "INSERT INTO sessions (id, source, system_prompt, started_at)"
    " SELECT 'later', source, '', started_at + 60 FROM sessions"
)
SAID = (
    "INSERT INTO messages (id, session_id, role, content, timestamp, active)"
    " VALUES (7, 'later', 'user', 'How much does the tin weigh?', 0, 1),"
    " (8, 'later', 'assistant', ?, 0, 1), (9, 'later', 'assistant', ?, 0, 1)"
)


def with_a_later_session(path, answer="95 g."):
    return made(path, "hermes", (LATER,), (SAID, answer, answer))


@pytest.mark.parametrize(
    ("options", "objectives"),
    [
        ((), ["loaf", "tin"]),
        (("--newest", "1"), ["tin"]),
        (("--newest", "5"), ["loaf", "tin"]),
        (("--session", "20261129_060000_95adec"), ["loaf"]),
        (("--session", "later", "--session", "20261129_060000_95adec"), ["loaf", "tin"]),
        (("--since", "2026-11-29T06:00:30Z"), ["tin"]),
        (("--since", "2026-11-29T05:59:00Z", "--newest", "1"), ["tin"]),
    ],
)
def test_sessions_of_a_database_are_chosen(tmp_path, kp_worker, options, objectives):
    result = kp_worker("convert", *options, with_a_later_session(tmp_path / "state.db"))

    told = [json.loads(line)["task"]["objective"] for line in result.stdout.splitlines()]
    assert [objective.partition("does the ")[2].partition(" ")[0] for objective in told] == objectives


def test_a_session_that_is_not_there_is_named(tmp_path):
    path = made(tmp_path / "db", "hermes")

    ((_, error),) = convert_database(str(path), AUTO, Options(), Selection(("other",)))

    assert str(error) == "holds no session other"


def test_sessions_are_chosen_in_databases_only(tmp_path, kp_worker):
    (tmp_path / "runs.jsonl").write_text("{}")

    result = kp_worker("convert", "--newest", "1", tmp_path / "runs.jsonl")

    assert result.exit_code != 0
    assert "no database of an agent, in which --session, --since and --newest choose" in result.stderr


@pytest.mark.parametrize("command", ["score", "publish"])
def test_other_commands_convert_a_database_without_being_told(tmp_path, kp_worker, command):
    path = made(tmp_path / "state.db", "hermes")

    result = kp_worker(command, "--dry-run", path)

    assert result.exit_code == 0, result.stderr


def test_a_log_that_grows_while_it_is_copied_is_no_reason_to_copy_again(tmp_path, monkeypatch):
    """An agent that commits a hundred times a second would never be seen at rest."""
    path = made(tmp_path / "db", "hermes")
    with closing(sqlite3.connect(path)) as agent:
        agent.execute("PRAGMA journal_mode = wal")
        agent.execute("PRAGMA wal_autocheckpoint = 5")  # so that pages move while they are copied
        copied, copies = databases.copyfile, []

        def copying(source, target):
            copies.append(source)
            for _ in range(10):
                agent.execute("UPDATE messages SET token_count = coalesce(token_count, 0) + 1")
                agent.commit()
            copied(source, target)

        agent.execute("UPDATE messages SET token_count = 1")
        agent.commit()
        with closing(sqlite3.connect(path)) as reader:  # by whose snapshot the log cannot begin again
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM messages").fetchall()
            monkeypatch.setattr(databases, "copyfile", copying)

            (outcome,) = told(path)

    assert len(copies) == 2
    assert len(steps_of(outcome)) == 7


def test_a_log_that_began_again_is_copied_again(tmp_path, monkeypatch):
    path = made(tmp_path / "db", "hermes")
    with closing(sqlite3.connect(path)) as agent:
        agent.execute("PRAGMA journal_mode = wal")
        agent.execute("UPDATE messages SET token_count = 1")
        agent.commit()
        copied, copies = databases.copyfile, []

        def copying(source, target):
            copies.append(source)
            copied(source, target)
            if len(copies) == 1:
                agent.execute("PRAGMA wal_checkpoint(restart)")
                agent.execute("UPDATE messages SET token_count = 2")
                agent.commit()

        monkeypatch.setattr(databases, "copyfile", copying)

        (outcome,) = told(path)

    assert len(copies) == 4
    assert len(steps_of(outcome)) == 7


def test_a_database_without_a_log_that_changes_while_it_is_read_gives_no_further_runs(tmp_path):
    path = with_a_later_session(tmp_path / "db")
    outcomes = convert_database(str(path), AUTO, Options())

    first = next(outcomes)[1]
    os.utime(path)
    (error,) = [outcome for _, outcome in outcomes]

    assert len(steps_of(first)) == 7
    assert str(error) == "in use: it changed while it was read; try again"


def test_a_session_that_is_too_large_is_refused_and_the_others_are_read(tmp_path, monkeypatch):
    path = with_a_later_session(tmp_path / "db", "95 g. " * 400)
    monkeypatch.setattr(databases, "MAX_DOCUMENT", 4000)

    outcome, error = told(path)

    assert len(steps_of(outcome)) == 7
    assert str(error).startswith("is a session of more than ")


def test_a_size_that_is_none_costs_its_entry_alone(tmp_path):
    (outcome,) = told(made(tmp_path / "db", "openclaw", (INSERT.format("event_zstd"), 99, "text", "many")))

    assert len(steps_of(outcome)) == 7
    assert outcome.losses["unreadable"].suspect
