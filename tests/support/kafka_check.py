"""Run tests of real brokers by `python -m support.kafka_check pytest …`, and keep the result for the release.

`make check NAME=kafka` calls it; a table in COMPATIBILITY.md shows the results.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from support.java_kafka import VERSION

RESULTS = Path(__file__).parents[1] / "data" / "kafka-releases.json"
"""The results: a day and numbers of tests by outcome, for each part of the tests and each release."""


def counts(report: Path) -> dict[str, dict[str, int]]:
    """Return the numbers of tests by outcome, for each folder of tests in a JUnit report."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case in ElementTree.parse(report).iter("testcase"):
        _, folder, *_ = case.attrib["classname"].split(".")
        found[folder][_outcome(case)] += 1
    return {folder: dict(outcomes) for folder, outcomes in found.items()}


def _outcome(case: ElementTree.Element) -> str:
    if case.find("skipped") is not None:
        return "skipped"
    return "passed" if len(case) == 0 else "failed"


def store(release: str, parts: dict[str, dict[str, int]]) -> None:
    """Keep a release's results, in place of former ones of the same parts."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    today = time.strftime("%Y-%m-%d")
    kept[release] = kept.get(release, {}) | {part: {"day": today, **found} for part, found in parts.items()}
    RESULTS.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def main() -> int:
    """Run the command of the arguments; return its exit status."""
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        status = subprocess.run([*sys.argv[1:], f"--junitxml={report}"], check=False).returncode
        if report.exists():
            store(VERSION, counts(report))
    return status


if __name__ == "__main__":
    sys.exit(main())
