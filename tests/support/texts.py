"""What commands say: transcripts, in which each sentence of a refusal or an advice is written once.

A transcript is a command as it is typed in a folder of files, what it prints, and its exit status where that
is not 0; `…` stands for any text. The lines that show how a command is used are left out::

    $ KP_WEB__PORT=no kp-worker config
    Error: KP_WEB__PORT: got 'no'; …
    [78]
"""

from __future__ import annotations

import re
import shlex
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from knowledgepulse_curator.fitting.fit_command import NO_PROPOSAL
from knowledgepulse_worker.cli.entry import main

TEXTS = Path(__file__).parents[1] / "data" / "texts"
_USAGE = re.compile(r"^Usage: .*\n(?: +.*\n)*Try .*\n\n", re.MULTILINE)


@dataclass(frozen=True)
class Transcript:
    """A command, and what it is expected to print."""

    command: str
    said: str


def transcripts(name: str) -> list[pytest.param]:
    """Return the transcripts of a file, as parameters of a test."""
    texts = re.findall(r"^\$ (.*)\n((?:[^\n]+\n)*)", (TEXTS / name).read_text(), re.MULTILINE)
    return [pytest.param(Transcript(*text), id=text[0]) for text in texts]


def check(transcript: Transcript, folder: Path) -> None:
    """Run a command in its folder: it prints the text, changes no file, and has no output if it fails."""
    before = contents(folder)

    with chdir(folder):
        result = run(transcript.command)

    said = _USAGE.sub("", result.output) + (f"[{result.exit_code}]\n" if result.exit_code else "")
    assert matches(transcript.said, said), said
    assert not (result.exit_code not in (0, NO_PROPOSAL) and result.stdout)
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert contents(folder) == before


def run(command: str) -> Result:
    """Run a command, with the variables before it."""
    words = shlex.split(command)
    at = words.index("kp-worker")
    variables = dict(word.split("=", 1) for word in words[:at])
    return CliRunner().invoke(main, words[at + 1 :], env=variables)


def matches(text: str, said: str) -> bool:
    """Return whether what was said is the text, in which `…` stands for anything."""
    return re.fullmatch(re.escape(text).replace("…", ".*"), said, re.DOTALL) is not None


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the contents of all files of a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
