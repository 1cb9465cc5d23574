"""`make simulate`: play histories on all cores with a live count; shrink and print failing histories."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from itertools import count

from simulation.play import HISTORIES, play
from simulation.shrink import shrink

COLLECTED = 20
"""The number of histories after which their garbage is collected, which costs less than after each."""


def _play(kinds, first, step, until, results):
    """Play every ``step``th history until the time is up; queue each result, and finally None."""
    warnings.simplefilter("ignore")  # of a killed process's coroutines
    gc.disable()
    for number, (seed, of) in enumerate((seed, of) for seed in count(first, step) for of in kinds):
        if time.monotonic() > until:
            break
        outcome = play(HISTORIES[of](seed))
        if number % COLLECTED == 0:
            gc.collect()
        results.put((of, seed, outcome.violations, outcome.records, outcome.steps, outcome.counts))
    results.put(None)


def main():
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--of", choices=HISTORIES, help="play only histories of this kind")
    parser.add_argument("--seed", type=int, help="play only this one, and print what happened")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of a killed process's coroutines
    if arguments.seed is not None:
        return _show(play(HISTORIES[arguments.of or "worker"](arguments.seed), keep_log=True))
    return _run(arguments)


def _run(arguments):
    started, cores = time.monotonic(), arguments.cores
    counts, failed, records, steps, played, shown = Counter[str](), [], 0, 0, 0, 0.0
    results = multiprocessing.SimpleQueue()
    for number in range(cores):
        kinds = [arguments.of] if arguments.of else [*HISTORIES]
        task = (kinds, arguments.first + number, cores, started + arguments.seconds, results)
        multiprocessing.Process(target=_play, args=task, daemon=True).start()
    last, running = arguments.first, cores
    while running:
        result = results.get()
        if result is None:
            running -= 1
            continue
        of, seed, violations, more_records, more_steps, more = result
        played, records, steps, last = played + 1, records + more_records, steps + more_steps, max(last, seed)
        counts += more
        if violations:
            failed.append((seed, of))
            print(f"\n{of}, seed {seed}: {violations[0]}", flush=True)
        if time.monotonic() - shown > 1:
            shown = time.monotonic()
            rate = played / (shown - started)
            print(f"\r{played} histories, {rate:.1f}/s, {len(failed)} failed", end="", flush=True)
    seconds = time.monotonic() - started
    print(f"\n{played} histories, seeds {arguments.first} to {last}, in {seconds:.0f} s on {cores} cores")
    print(f"{records} records, {steps} callbacks; {dict(counts.most_common())}")
    for seed, of in sorted(failed)[:3]:
        _show(shrink(play(HISTORIES[of](seed))))
    return bool(failed)


def _show(outcome):
    for line in outcome.log:
        print(line)
    print(outcome.history)
    print(f"{outcome.digest}: {outcome.violations or 'nothing violated'}")
    return bool(outcome.violations)


if __name__ == "__main__":
    sys.exit(main())
