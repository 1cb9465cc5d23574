"""Run the programs beside a worker, and keep what was seen: `make check NAME=interoperability`."""

from __future__ import annotations

import argparse
import signal
import sys

from interoperability.part import Part, environment
from interoperability.parts import PARTS
from interoperability.results import keep


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"which to run, of {', '.join(PARTS)}; all by default")
    chosen = parser.parse_args().parts or list(PARTS)
    right = [_right(name, PARTS[name]) for name in chosen]
    sys.exit(0 if all(right) else 1)


def _right(name: str, part: Part) -> bool:
    """Run a part, print each case, and keep them; return whether all are as they are meant to be."""
    cases = []
    for case in part.run(environment(name, part.requires)):
        cases.append(case)
        print(f"{name}: {case.program}: {case.what}: {case.seen}", flush=True)
        if case.seen != case.expected:
            print(f"  expected: {case.expected}", flush=True)
    keep(name, part, cases)
    return all(case.seen == case.expected for case in cases)


main()
