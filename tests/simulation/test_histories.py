"""Histories of fixed seeds hold; a seed gives the same history in every process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulation.histories import history
from simulation.play import play

TESTS = Path(__file__).parents[1]
SEEDS = 240
NEW = 40
BATCH = 40


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_no_history_loses_repeats_differently_or_blocks(first):
    for seed in range(first, first + BATCH):
        outcome = play(history(seed))
        assert outcome.violations == [], f"python -m simulation --seed {seed}\n{outcome.history}"


def test_new_histories_hold():
    """Without topics that are created again: rare defects there are known, see the README."""
    first = int(time.time())
    for seed in range(first, first + NEW):
        drawn = history(seed)
        events = tuple(one for one in drawn.events if one.kind != "recreate")
        outcome = play(drawn.without(events=events))
        assert outcome.violations == [], outcome.history


def test_a_seed_gives_the_same_events_whatever_the_hashes_of_strings():
    script = (
        "from simulation.histories import history; from simulation.play import play\n"
        "print([play(history(seed)).digest for seed in range(300, 320)])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            env=os.environ | {"PYTHONPATH": str(TESTS), "PYTHONHASHSEED": hashes},
            capture_output=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert len(digests) == 1
