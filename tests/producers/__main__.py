"""Runs producers, and compares what they write with what they did: `make producers-check`."""

from __future__ import annotations

import argparse
from pathlib import Path

from producers import report
from producers.comparison import NOT_INSTALLED, Verdict, compared
from producers.play import play
from producers.producer import ENVIRONMENTS, Producer, producers
from producers.script import RUNS


def main() -> None:
    arguments = _arguments()
    chosen = [each for each in producers() if _is_chosen(each, arguments.producers)]
    verdicts = {}
    for producer in chosen:
        installed = producer.install()
        for run in (run for run in producer.runs if run in arguments.run):
            output = arguments.output / producer.name / run
            verdict = _checked(producer, run, output) if installed else Verdict(NOT_INSTALLED)
            verdicts[producer, run] = verdict
            report.keep(producer, run, verdict)
            print(f"{producer.label}: {run}: {verdict.words}", flush=True)
    print("\n" + report.table(verdicts))


def _checked(producer: Producer, run: str, output: Path) -> Verdict:
    return compared(producer, play(producer, run, output), output)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("producers", nargs="*", help="names, or how they begin; all by default")
    parser.add_argument(
        "--run", nargs="+", choices=list(RUNS), default=list(RUNS), help="runs; all by default"
    )
    parser.add_argument("--output", type=Path, default=ENVIRONMENTS / "output", help="what producers write")
    return parser.parse_args()


def _is_chosen(producer: Producer, names: list[str]) -> bool:
    return not names or any(producer.name.startswith(name) for name in names)


main()
