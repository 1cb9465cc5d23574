"""Apply the mutants of ``mutants.jsonl`` one by one, and show which the histories find.

Most mutants break the worker. Those in ``testing/`` break the brokers where the worker relies on them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import SourceFileLoader
from pathlib import Path

HERE = Path(__file__).parent
WORKER, KAFKA = (
    (HERE.parents[1] / "worker" / name) for name in ("knowledgepulse_worker", "knowledgepulse_kafka")
)
_SCRIPT = """
from simulation.mutants import install, read_mutants
mutant = read_mutants()[{number}]
install(mutant)
from simulation.histories import FOUND; from simulation.play import HISTORIES, play
for number, seed in enumerate([*range({limit}), *FOUND], 1):
    violations = play(HISTORIES[mutant.get("of", "worker")](seed)).violations
    if violations: print(number, violations[0], sep=' | '); break
else: print('not found')
"""


def main():
    parser = argparse.ArgumentParser(prog="python -m simulation.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only breaks whose description has one of these")
    parser.add_argument(
        "--limit", type=int, default=400, help="histories; then those that have found something"
    )
    arguments = parser.parse_args()
    words = arguments.words
    chosen = [
        (number, mutant)
        for number, mutant in enumerate(read_mutants())
        if not words or any(word in mutant["what"] for word in words)
    ]
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        results = threads.map(lambda numbered: _play(numbered[0], arguments.limit), chosen)
        for (_, mutant), result in zip(chosen, results, strict=True):
            missed += not result[0].isdigit()
            print(f"| {mutant['what']} | {mutant['file']} | {result[:70]} |", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return missed


def read_mutants():
    """Return the mutants of ``mutants.jsonl``."""
    return [json.loads(line) for line in (HERE / "mutants.jsonl").read_text().splitlines()]


def mutated(mutant):
    """Return the text of a mutant's file with its edits.

    Raises:
        ValueError: an edit's text does not occur once; the code has changed.
    """
    text = _path(mutant).read_text()
    for old, new in mutant["edits"]:
        if text.count(old) != 1:
            raise ValueError(f"its text occurs {text.count(old)} times: {old!r}")
        text = text.replace(old, new)
    return text


def _path(mutant):
    """Return a mutant's file: in the worker's package unless it says another."""
    for package in (KAFKA, HERE):
        if mutant["file"].startswith(f"{package.name}/"):
            return package.parent / mutant["file"]
    return WORKER / mutant["file"]


def install(mutant):
    """Let this process import the mutant instead of its file; all other modules come from their caches."""
    broken = str(_path(mutant))
    code = compile(mutated(mutant), broken, "exec")
    original = SourceFileLoader.get_code
    SourceFileLoader.get_code = lambda loader, name: code if loader.path == broken else original(loader, name)


def _play(number, limit):
    """Play histories on a mutant until one fails; return the number of histories and the reason."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT.format(number=number, limit=limit)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (HERE.parent, WORKER.parent)))},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout.strip() or f"ends at once: {ran.stderr.strip().splitlines()[-1]}"


if __name__ == "__main__":
    sys.exit(main())
