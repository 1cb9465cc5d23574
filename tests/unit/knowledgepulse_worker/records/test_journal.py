"""The journal in shared memory, which outlives the process that writes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from knowledgepulse_worker.records import journal as module
from knowledgepulse_worker.records.journal import Journal, Suspect, Treatment, shared_memory
from knowledgepulse_worker.records.record import Location

A, B = Location(0, 0), Location(1, 2**40)


@pytest.fixture
def memory():
    descriptor = shared_memory()
    yield descriptor
    os.close(descriptor)


CHILD = """\
import os, sys
from knowledgepulse_worker.records.journal import Journal, Location
journal = Journal(int(sys.argv[1]))
journal.begin(Location(0, 0))
journal.begin(Location(5, 6))
journal.begin(Location(1, 2**40))
journal.end(Location(5, 6))
"""


def test_a_dead_child_s_journal_survives(memory):
    command = [sys.executable, "-c", f"{CHILD}os.kill(os.getpid(), 9)", str(memory)]
    assert subprocess.run(command, check=False, pass_fds=[memory]).returncode == -signal.SIGKILL
    assert Journal(memory).in_progress() == {A, B}


def test_the_next_child_finds_the_suspects_and_clears_those_that_are_committed(memory):
    suspects = {A: Suspect(2, Treatment.ISOLATED), B: Suspect(0, Treatment.DEAD_LETTER)}
    Journal(memory).prepare(suspects)

    child = Journal(memory)
    assert child.has_suspects
    assert (child.treatment(A), child.treatment(B), child.treatment(Location(0, 1))) == (
        Treatment.ISOLATED,
        Treatment.DEAD_LETTER,
        None,
    )
    child.forget(0, below=0)
    child.forget(1, below=5)
    assert Journal(memory).suspects() == suspects
    child.forget(0, below=1)
    assert Journal(memory).suspects() == {B: suspects[B]}


def test_the_next_child_starts_with_an_empty_journal(memory):
    Journal(memory).begin(A)
    Journal(memory).prepare({})
    assert Journal(memory).in_progress() == frozenset()


@pytest.mark.parametrize(("blames", "kept"), [(True, {A}), (False, set())])
def test_a_child_that_exits_by_itself_keeps_its_notes_if_a_record_may_be_the_cause(memory, blames, kept):
    child = Journal(memory)
    child.begin(A)
    child.close(blames_records=blames)
    child.begin(Location(2, 2))
    child.end(A)
    child.close()
    assert Journal(memory).in_progress() == kept


def test_a_revoked_partition_s_records_are_removed(memory):
    child = Journal(memory)
    child.begin(A)
    child.begin(B)
    child.end_partition(1)
    assert Journal(memory).in_progress() == {A}


def test_records_beyond_the_capacity_are_not_noted(memory):
    locations = [Location(0, offset) for offset in range(module.ROWS + 10)]
    child = Journal(memory)
    for location in locations:
        child.begin(location)
    assert len(Journal(memory).in_progress()) == module.ROWS
    for location in locations:
        child.end(location)
    child.begin(B)
    assert Journal(memory).in_progress() == {B}


def test_the_gravest_of_too_many_suspects_are_kept(memory):
    many = {Location(0, offset): Suspect(1) for offset in range(module.ROWS)}
    Journal(memory).prepare(many | {B: Suspect(0, Treatment.SKIPPED)})
    assert Journal(memory).treatment(B) is Treatment.SKIPPED
