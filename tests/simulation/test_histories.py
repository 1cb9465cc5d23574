"""The invariants hold in histories of fixed seeds; a seed gives the same history everywhere.

`make simulate` plays new ones.
"""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from simulation.histories import FOUND
from simulation.mutants import mutated, read_mutants
from simulation.play import HISTORIES, play

TESTS = Path(__file__).parents[1]


def check(histories):
    for seed, of in histories:
        outcome = play(HISTORIES[of](seed))
        assert outcome.violations == [], f"python -m simulation --of {of} --seed {seed}\n{outcome.history}"


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(FOUND, id="found"),
        pytest.param(range(50), id="0"),
        pytest.param(range(50, 200), id="50", marks=pytest.mark.integration),
    ],
)
def test_no_history_loses_repeats_differently_or_blocks(seeds):
    check(product(seeds, ["worker"]))


@pytest.mark.parametrize("of", [pytest.param("assembler", marks=pytest.mark.integration), "evaluator"])
def test_no_history_publishes_twice_or_not_at_all(of):
    check(product(range(100), [of]))


def digests(**environment):
    """Return the digests of a few histories that another process plays."""
    script = (
        "from simulation.play import HISTORIES, play\n"
        "print([play(new(seed)).digest for new in HISTORIES.values() for seed in range(1000, 1010)])"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    changed = os.environ | {"PYTHONPATH": str(TESTS)} | environment
    return subprocess.run(command, env=changed, capture_output=True, check=True).stdout


@pytest.mark.integration
def test_a_seed_gives_the_same_events_whatever_the_hashes_of_strings_and_the_instructions_of_the_cpu():
    """Restricting NumPy to its baseline instructions comes closest to another machine."""
    plain = " ".join(feature for feature in __cpu_dispatch__ if __cpu_features__[feature])

    assert digests(PYTHONHASHSEED="1") == digests(PYTHONHASHSEED="3", NPY_DISABLE_CPU_FEATURES=plain)


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda mutant: mutant["what"])
def test_a_mutant_can_be_made_of_the_code_as_it_is(mutant):
    """`python -m simulation.mutants`, which takes long, would not break what has been written anew."""
    compile(mutated(mutant), mutant["file"], "exec")
