"""Histories of fixed seeds hold, and new ones; a seed gives the same history everywhere."""

import os
import subprocess
import sys
import time
from itertools import count, takewhile
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from simulation.histories import FOUND, history
from simulation.play import play

TESTS = Path(__file__).parents[1]
SECONDS = 60


def check(seeds):
    for seed in seeds:
        outcome = play(history(seed))
        assert outcome.violations == [], f"python -m simulation --seed {seed}\n{outcome.history}"


@pytest.mark.parametrize("seeds", [FOUND, range(100), range(100, 200)], ids=["found", "0", "100"])
def test_no_history_loses_repeats_differently_or_blocks(seeds):
    check(seeds)


@pytest.mark.integration
def test_new_histories_hold():
    end = time.monotonic() + SECONDS
    check(takewhile(lambda _: time.monotonic() < end, count(int(time.time()))))


def digests(**environment):
    """Return what a few histories give in another process."""
    script = (
        "from simulation.histories import history; from simulation.play import play\n"
        "print([play(history(seed)).digest for seed in range(1000, 1015)])"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    changed = os.environ | {"PYTHONPATH": str(TESTS)} | environment
    return subprocess.run(command, env=changed, capture_output=True, check=True).stdout


def test_a_seed_gives_the_same_events_whatever_the_hashes_of_strings_and_the_instructions_of_the_cpu():
    """The latter is the nearest to another machine: numpy then computes with its baseline only."""
    plain = " ".join(one for one in __cpu_dispatch__ if __cpu_features__[one])

    assert digests(PYTHONHASHSEED="1") == digests(PYTHONHASHSEED="3", NPY_DISABLE_CPU_FEATURES=plain)
