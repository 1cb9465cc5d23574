"""Writes what producers wrote as recorded conversions, small and without anything of this machine."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from producers.model import seen_results
from producers.producer import ROOT, Producer
from producers.script import Script, script
from support.conversions import FOLDER, outcomes_of

PROSE = 160
"""From this many characters, a text in which nothing of the script stands is the program's own."""
_SHORT = "A text of the program."
_START = 1_767_225_600_000_000_000
"""The time that recorded runs begin at, in nanoseconds."""
_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b"
)
_PATH = re.compile(rf"(?:{re.escape(str(ROOT))}|{re.escape(str(Path.home()))}|/tmp)[^\s\"',:)]*")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_NANOSECONDS = re.compile(r"\b1[6-9]\d{17}\b")
_SECONDS = re.compile(r"\b1[6-9]\d{8}(?=\.\d+\b)|\b1[6-9]\d{8}\b")
_DROPPED = re.compile(
    r"host\.|process\.|os\.|server\.port|exception\.stacktrace|gen_ai\.usage\.|llm\.(token_count|usage)\."
)
"""Attributes that are left out: those of the machine, and of what no converter reads, the many."""


def record(producer: Producer, run: str, output: Path) -> None:
    """Write a run's documents to the recorded conversions of its format, in place of an earlier record."""
    (trace, *_) = map(json.loads, (output / "traces.jsonl").read_text().splitlines())
    file = FOLDER / f"{trace['metadata']['framework']}.jsonl"
    (document,) = output.glob(producer.document)
    seen = sorted(seen_results(output / "requests.jsonl"))
    case = Cleaner(script(run, producer.tools)).cleaned(_case(document) | {"seen": seen})
    named = {"name": f"a run of {producer.name.replace('/', ', ')}: {run.replace('_', ' ')}"}
    of = {"producer": producer.name, "run": run, "recorded": f"{producer.label}, {_today()}"}
    case = named | of | case
    case |= {"expected": outcomes_of(case)}
    kept = [line for line in file.read_text().splitlines() if not _is_of(json.loads(line), producer, run)]
    file.write_text("".join(f"{line}\n" for line in [*kept, json.dumps(case)]))


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _is_of(case: dict[str, Any], producer: Producer, run: str) -> bool:
    return case.get("producer") == producer.name and case.get("run") == run


def _case(document: Path) -> dict[str, Any]:
    text = document.read_text()
    try:
        return {"document": json.loads(text)}
    except json.JSONDecodeError:
        return {"lines": True, "document": [json.loads(line) for line in text.splitlines()]}


class Cleaner:
    """Replaces what belongs to this machine or to the program's authors, the same by the same."""

    def __init__(self, followed: Script) -> None:
        self._texts = [
            text
            for each in followed.conversations
            for text in (each.objective, *(turn.text for turn in each.turns))
            if text
        ]
        self._ids: dict[str, str] = {}
        self._first: int | None = None

    def cleaned(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._members(value)
        if isinstance(value, list):
            return [self.cleaned(part) for part in value if not _is_dropped(part)]
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return json.loads(self._without_times(json.dumps(value)))
        return value

    def _members(self, members: dict[str, Any]) -> dict[str, Any]:
        """Return members without those of the machine; of a tool's parameters, only that it has some."""
        if members.get("type") == "object" and "properties" in members:
            return {"type": "object"}
        return {name: self.cleaned(part) for name, part in members.items() if not _DROPPED.match(name)}

    def _text(self, text: str) -> str:
        if text[:1] in "[{":
            try:
                return json.dumps(self.cleaned(_without_nulls(json.loads(text))), ensure_ascii=False)
            except json.JSONDecodeError:
                pass
        text = self._without_times(_ADDRESS.sub("127.0.0.1:8000", _PATH.sub("/home/guest/program", text)))
        text = _ID.sub(lambda found: self._id(found[0]), text)
        own = any(said in text for said in self._texts)
        return text if own or len(text) < PROSE else _SHORT

    def _id(self, found: str) -> str:
        number = self._ids.setdefault(found, f"{len(self._ids) + 1:x}")
        return re.sub(r"[0-9a-f]", "0", found)[: len(found) - len(number)] + number

    def _without_times(self, text: str) -> str:
        text = _NANOSECONDS.sub(lambda found: self._moved(found[0], 1), text)
        return _SECONDS.sub(lambda found: self._moved(found[0], 10**9), text)

    def _moved(self, digits: str, unit: int) -> str:
        nanoseconds = int(digits) * unit
        if self._first is None:
            self._first = nanoseconds
        moved = _START + nanoseconds - self._first
        return str(moved // unit)


def _is_dropped(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("key"), str) and bool(_DROPPED.match(part["key"]))


def _without_nulls(value: Any) -> Any:
    """Return what is dumped in a text without members that hold nothing, which are most of it."""
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part not in (None, [], {}, "")}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value
