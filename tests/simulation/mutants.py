"""Apply the mutants of ``mutants.jsonl`` one by one, and show which the histories find.

Most mutants break the worker. Those in ``testing/`` break the brokers where the worker relies on them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
WORKER, KAFKA = (
    (HERE.parents[1] / "worker" / name) for name in ("knowledgepulse_worker", "knowledgepulse_kafka")
)
_SCRIPT = """
from simulation.histories import FOUND; from simulation.play import HISTORIES, play
for number, seed in enumerate([*range({limit}), *FOUND], 1):
    violations = play(HISTORIES["{of}"](seed)).violations
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
        mutant for mutant in read_mutants() if not words or any(word in mutant["what"] for word in words)
    ]
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        results = threads.map(lambda mutant: _play(mutant, arguments.limit), chosen)
        for mutant, result in zip(chosen, results, strict=True):
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
    package, path = _place(mutant)
    text = (package / path).read_text()
    for old, new in mutant["edits"]:
        if text.count(old) != 1:
            raise ValueError(f"its text occurs {text.count(old)} times: {old!r}")
        text = text.replace(old, new)
    return text


def _place(mutant):
    """Return the folder of a mutant's package, and its file there: in the worker's unless it says another."""
    for package in (KAFKA, HERE):
        if mutant["file"].startswith(f"{package.name}/"):
            return package, mutant["file"].removeprefix(f"{package.name}/")
    return WORKER, mutant["file"]


def _play(mutant, limit):
    """Play histories on a mutant until one fails; return the number of histories and the reason."""
    with tempfile.TemporaryDirectory() as folder:
        for package in (WORKER, KAFKA, HERE):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package, Path(folder) / package.name, ignore=ignored)
        package, path = _place(mutant)
        Path(folder, package.name, path).write_text(mutated(mutant))
        ran = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                _SCRIPT.format(limit=limit, of=mutant.get("of", "worker")),
            ],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([folder, str(HERE.parent)])},
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.stdout.strip() or f"ends at once: {ran.stderr.strip().splitlines()[-1]}"


if __name__ == "__main__":
    sys.exit(main())
