"""Runs producers, and compares what they write with what they did: `make check NAME=producers`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from producers import report
from producers.comparison import NOT_INSTALLED, RIGHT, Verdict, compared
from producers.play import play
from producers.producer import ENVIRONMENTS, Producer, newest, producers, version
from producers.record import record
from producers.script import RUNS


def main() -> None:
    # Shells let programs in the background ignore it, and programs that these start, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = _arguments()
    if arguments.outdated:
        _print_outdated(arguments)
        return
    if arguments.counts:
        print(report.counts(_chosen(arguments)))
        return
    pairs = list(_chosen(arguments))
    missing = {} if arguments.compare else _not_installed(pairs)
    verdicts = {}

    def checked(pair: tuple[Producer, str]) -> Verdict:
        reason = missing.get(pair[0])
        return Verdict(NOT_INSTALLED, said=reason) if reason else _checked(*pair, arguments)

    with ThreadPoolExecutor(arguments.jobs) as executor:
        for (producer, run), verdict in zip(pairs, executor.map(checked, pairs), strict=True):
            verdicts[producer, run] = verdict
            if verdict.verdict != NOT_INSTALLED:  # the last verdict of a machine that has it remains
                report.keep(producer, run, verdict)
            if arguments.record and verdict.verdict == RIGHT and verdict.traces:
                record(producer, run, arguments.output / producer.name / run)
            print(f"{producer.label}: {run}: {verdict.words}", flush=True)
    print("\n" + report.table(verdicts))
    if any(each.silently_wrong or each.verdict == NOT_INSTALLED for each in verdicts.values()):
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("producers", nargs="*", help="names, or how they begin; all by default")
    parser.add_argument(
        "--run", nargs="+", choices=list(RUNS), default=list(RUNS), help="runs; all by default"
    )
    parser.add_argument("--output", type=Path, default=ENVIRONMENTS / "output", help="what producers write")
    parser.add_argument("--compare", action="store_true", help="compare what was written before")
    parser.add_argument("--outdated", action="store_true", help="only list what has a newer release")
    parser.add_argument("--counts", action="store_true", help="only count the last verdicts")
    parser.add_argument("--record", action="store_true", help="record the conversions that are right")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at a time")
    return parser.parse_args()


def _print_outdated(arguments: argparse.Namespace) -> None:
    """Print the producers whose program has a newer release than the one that is played."""
    programs = {producer.requires[0]: producer for producer, _ in _chosen(arguments)}
    for producer in programs.values():
        played = version(producer.requires)
        try:
            found = newest(producer)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{producer.title} {played}: not known, since {error}", flush=True)
        else:
            if found != played:
                print(f"{producer.title} {played}: {found} is the newest", flush=True)


def _chosen(arguments: argparse.Namespace) -> Iterator[tuple[Producer, str]]:
    for producer in producers():
        if not arguments.producers or any(map(producer.name.startswith, arguments.producers)):
            yield from ((producer, run) for run in producer.runs if run in arguments.run)


def _not_installed(pairs: list[tuple[Producer, str]]) -> dict[Producer, str]:
    """Install the producers, one after another, since some share an environment; say why some cannot be."""
    reasons = {producer: producer.install() for producer in dict.fromkeys(producer for producer, _ in pairs)}
    return {producer: reason for producer, reason in reasons.items() if reason}


def _checked(producer: Producer, run: str, arguments: argparse.Namespace) -> Verdict:
    output = arguments.output / producer.name / run
    if not arguments.compare:
        play(producer, run, output)
    return compared(producer, run, output)


main()
