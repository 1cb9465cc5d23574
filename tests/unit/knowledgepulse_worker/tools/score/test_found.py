"""`kp-worker score` without a file's name: the sessions that agents keep on this machine."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from knowledgepulse_convert import INPUT_FORMATS
from knowledgepulse_worker.tools.score import sources
from knowledgepulse_worker.tools.score.score_command import score

DATA = Path(__file__).parents[4] / "data"
NOON = 1_780_000_000
HOUR = 3600


class Home:
    """A home folder in which agents keep sessions that runs of them wrote, each an hour after the last."""

    def __init__(self, folder, monkeypatch):
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setattr(sources.time, "time", lambda: NOON + 100 * HOUR)
        self.folder, self._hours = folder, count()

    def has(self, pattern, text):
        file = self.folder / pattern.format(next(self._hours))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return self._dated(file)

    def _dated(self, file):
        time = NOON + int(file.stem[-1]) * HOUR
        os.utime(file, (time, time))
        return file

    def has_codex(self):
        return self.has(".codex/sessions/2026/06/01/rollout-{}.jsonl", lines_of("codex"))

    def has_pi(self):
        return self.has(".pi/agent/sessions/bakery/{}.jsonl", lines_of("pi"))

    def has_opencode(self, hour):
        path = self.folder / ".local/share/opencode/opencode.db"
        path.parent.mkdir(parents=True)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript((DATA / "databases/opencode.sql").read_text("utf-8"))
            connection.execute("UPDATE session SET time_updated = ?", [(NOON + hour * HOUR) * 1000])
            connection.commit()
        return path


def lines_of(program):
    """Return what a run of a program wrote."""
    file = DATA / f"conversions/producers/{program}.jsonl"
    document = json.loads(file.read_text("utf-8").splitlines()[0])["document"]
    return "".join(f"{json.dumps(line)}\n" for line in document)


@pytest.fixture
def home(tmp_path, monkeypatch):
    return Home(tmp_path, monkeypatch)


def run(*options):
    return CliRunner().invoke(score, options)


def frameworks(result):
    return [json.loads(line)["trace"]["metadata"]["framework"] for line in result.stdout.splitlines()]


def test_sessions_in_files_and_databases_are_scored_together_the_oldest_first(home):
    home.has_codex()
    home.has_pi()
    home.has_codex()
    home.has_opencode(hour=1.5)

    result = run("--all", "--traces")

    assert frameworks(result) == ["codex", "pi", "opencode", "codex"]
    assert result.stderr.splitlines()[:2] == [
        "found: Codex 2 sessions, Pi 1, OpenCode 1; newest 4 days ago",
        "nothing leaves this machine; scoring all, the oldest first",
    ]
    assert [json.loads(line)["embedder"] for line in result.stdout.splitlines()] == [
        "lexical, text parts"
    ] * 4


def test_the_newest_are_scored_and_what_else_there_is_is_said(home):
    for _ in range(3):
        home.has_codex()
    home.has_pi()

    result = run("--newest", "2", "--traces")

    assert frameworks(result) == ["codex", "pi"]
    assert "scoring the newest 2 (`--all` scores the others, too)" in result.stderr


def test_an_agent_and_a_time_choose(home):
    home.has_codex()
    home.has_pi()
    home.has_codex()

    assert frameworks(run("--agent", "Codex", "--traces")) == ["codex", "codex"]
    assert frameworks(run("--since", "2026-05-28T21:00", "--traces")) == ["pi", "codex"]


def test_an_agent_of_another_name_is_told_which_there_are(home):
    result = run("--agent", "claude")

    assert "--agent claude: did you mean claude-code? the places of these are known: amp, " in str(
        result.exception
    )


def test_where_nothing_is_found_the_way_on_is_said(home):
    told = str(run("--all").exception)

    assert "no session was found where these agents keep them: Amp, Claude Code," in told
    assert "`kp-worker score FOLDER`" in told
    assert "`kp-worker sample traces > traces.jsonl`" in told


def test_the_settings_name_another_embedder(home, monkeypatch):
    home.has_codex()
    monkeypatch.setenv("KP_EMBEDDING__BACKEND", "none")

    assert json.loads(run("--all").stdout)["embedder"] == "none"
    assert json.loads(run("--all", "--embedder", "lexical").stdout)["embedder"].startswith("lexical")


def test_what_holds_no_run_or_cannot_be_read_stops_nothing(home):
    home.has_codex()
    home.has(".claude/projects/x/{}.jsonl", '{"type": "summary", "summary": "Bread"}\n')
    home.has(".claude/projects/x/{}.jsonl", "")
    damaged = home.folder / ".hermes/state.db"
    damaged.parent.mkdir()
    damaged.write_bytes(b"SQLite format 3\0" + b"x" * 100)

    result = run("--all", "--traces")

    assert frameworks(result) == ["codex"]
    assert f"{damaged}: not read: a damaged database of SQLite" in result.stderr
    assert "1 file without a run of a known format" in result.stderr
    assert result.exit_code == 0


def test_without_a_terminal_nothing_is_looked_for_unless_an_option_says_so(home):
    """A program that lost its argument must not read what a person keeps."""
    home.has_codex()

    result = run()

    assert result.exit_code == 2
    assert "Missing argument 'FILES...'" in result.stderr
    assert "found" not in result.stderr


def test_on_a_terminal_one_command_without_a_name_is_enough(home):
    home.has_codex()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "knowledgepulse_worker.cli.entry", "score"],
        env=os.environ | {"COLUMNS": "80", "TERM": "dumb"},
        cwd=home.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _, told = process.communicate()
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)

    assert "found: Codex 1 session; newest" in told
    assert "to keep the best: kp-worker score --keep best.jsonl" in shown


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            ["--agent", "codex", "."],
            "--agent and --all choose among the sessions that are found without FILES",
        ),
        (["--session", "ses_1"], "--session chooses in a database: name it as one of FILES"),
    ],
)
def test_options_that_say_nothing_here_are_refused(options, problem):
    assert problem in run(*options).stderr


def test_the_places_of_programs_begin_at_home():
    patterns = [place for known in INPUT_FORMATS.values() for own in known.places.values() for place in own]

    assert len(patterns) > 20
    assert all(pattern.startswith("~/") for pattern in patterns)
