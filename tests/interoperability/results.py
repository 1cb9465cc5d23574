"""The last results: JSON from which the tables of the documents are generated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from interoperability.part import Case, Part

FILE = Path(__file__).with_name("results.json")


def keep(name: str, part: Part, cases: Sequence[Case]) -> None:
    """Write a part's cases to the file, in place of its last ones."""
    found = kept()
    found[name] = {"requires": list(part.requires), "cases": [asdict(case) for case in cases]}
    FILE.write_text(json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False) + "\n")


def kept() -> dict[str, dict[str, list[dict[str, str]]]]:
    """Return the results of all parts."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}
