"""`make simulate`: play histories on all cores with a live count; shrink and print failing histories."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from itertools import count, product

from simulation.play import HISTORIES, play
from simulation.shrink import shrink

CHUNK = 50
"""The number of seeds that a process plays: to end it costs less than to collect the histories' garbage."""


def _play(kinds, seeds, until, results):
    """Play the histories of some seeds while there is time; queue each result, and finally None."""
    warnings.simplefilter("ignore")  # of a killed process's coroutines
    logging.disable(logging.CRITICAL)
    gc.disable()
    for seed, of in product(seeds, kinds):
        if time.monotonic() > until:
            break
        outcome = play(HISTORIES[of](seed))
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
    kinds, last = [arguments.of] if arguments.of else [*HISTORIES], arguments.first
    for result in _results(kinds, arguments.first, cores, started + arguments.seconds):
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


def _results(kinds, first, cores, until):
    """Yield the results of processes, one a core, until the time is up."""
    context = multiprocessing.get_context("fork")  # each begins with what is imported, and used once
    results, firsts = context.SimpleQueue(), count(first, CHUNK)

    def start():
        seeds = range(begin := next(firsts), begin + CHUNK)
        context.Process(target=_play, args=(kinds, seeds, until, results), daemon=True).start()

    for of in kinds:
        play(HISTORIES[of](first))
    for _ in range(cores):
        start()
    running = cores
    while running:
        if (result := results.get()) is not None:
            yield result
        elif time.monotonic() < until:
            start()
        else:
            running -= 1


def _show(outcome):
    for line in outcome.log:
        print(line)
    print(outcome.history)
    print(f"{outcome.digest}: {outcome.violations or 'nothing violated'}")
    return bool(outcome.violations)


if __name__ == "__main__":
    sys.exit(main())
