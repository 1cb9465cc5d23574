"""Writes what producers wrote as recorded runs, small and without anything of this machine."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from knowledgepulse_convert.input_formats import input_format_of
from knowledgepulse_worker.tools.convert.results_folders import files_in, joined
from producers.comparison import ARCHIVE
from producers.model import seen_results
from producers.producer import ROOT, Producer
from producers.script import Script, script

PROSE = 120
"""From this many characters, a text in which nothing of the script stands is the program's own."""
FOLDER = ROOT / "tests" / "data" / "conversions" / "producers"
LARGEST = 40_000
_SHORT = "A text of the program."
_START = 1_767_225_600_000_000_000
"""The time that recorded runs begin at, in nanoseconds."""
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-f])(?:[0-9a-f]{8}){2,4}(?![0-9a-f])")
_ISO = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")
_PATH = re.compile(rf"(?:{re.escape(str(ROOT))}|{re.escape(str(Path.home()))}|/tmp)[^\s\"',:)]*")
_TAG = re.compile(
    r"(<[\w-]+(?: \w+=\"\w+\")*>|For context: below is a transcript of what another agent did"
    r"|\[\w+\] [^\n]*:\n<<<BEGIN_QUOTED_AGENT_CONTENT>>>|Calling tools:\n\[\{'id': |ChatMessage\(.*)?"
)
"""What a program's text may begin with, by which it is told from the user's."""
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_NANOSECONDS = re.compile(r"\b1[6-9]\d{17}\b")
_SECONDS = re.compile(r"\b1[6-9]\d{8}(?=\.\d+\b)|\b1[6-9]\d{8}\b")
_DROPPED = re.compile(
    r"hostname|username|host\.|process\.|os\.|server\.port|exception\.stacktrace|gen_ai\.usage\.|llm\.(token_count|usage)\."
)
"""Attributes that are left out: those of the machine, and of what no converter reads, the many."""
_EVENTS = ("span_begin", "span_end", "state")
"""Events of Inspect that are left out, most of its logs: they repeat the messages."""


def record(producer: Producer, run: str, output: Path) -> None:
    """Write a run's document to the producer's recorded runs, in place of an earlier record."""
    paths = sorted(output.glob(producer.document))
    if any(path.suffix == ARCHIVE for path in paths):
        return  # the same logs are recorded as JSON
    documents = [document for path in paths for document in _documents(path)]
    seen = sorted(seen_results(output / "requests.jsonl"))
    content = {"document": documents if documents[1:] else documents[0], "seen": seen}
    of = {"producer": producer.name, "run": run, "recorded": f"{producer.label}, {_today()}"}
    line = json.dumps(of | Cleaner(script(run, producer.tools)).cleaned(content))
    if len(line) > LARGEST:
        print(f"{producer.name}, {run}: not recorded, as it is larger than {LARGEST:,} characters")
        return
    file = FOLDER / f"{producer.folder.name}.jsonl"
    kept = file.read_text().splitlines() if file.exists() else []
    lines = {_key(each): each for each in [*kept, line]}
    file.write_text("".join(f"{lines[key]}\n" for key in sorted(lines)))


def _documents(path: Path) -> Iterator[Any]:
    """Yield a document, or those in a folder that hold runs, with what other files say of these."""
    if not path.is_dir():
        yield _parsed(path.read_text())
        return
    for file in files_in(path, print):
        with suppress(json.JSONDecodeError):
            document = _parsed(b"".join(joined(str(file), file.open("rb"))).decode())
            if input_format_of(document) is not None:
                yield document


def recorded_runs() -> list[dict[str, Any]]:
    """Return all recorded runs."""
    files = sorted(FOLDER.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _key(line: str) -> tuple[str, str]:
    recorded = json.loads(line)
    return recorded["producer"], recorded["run"]


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _parsed(text: str) -> Any:
    """Return a document, or the list of its lines' documents."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


class Cleaner:
    """Replaces what belongs to this machine or to the program's authors, the same by the same."""

    def __init__(self, followed: Script) -> None:
        self._texts = [
            text
            for each in followed.conversations
            for text in (each.objective, *(turn.text for turn in each.turns))
            if text
        ] + [call.result for call in followed.calls if call.result]
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
        text = text.replace(platform.release(), "6.1.0")
        text = self._without_times(_ADDRESS.sub("127.0.0.1:8000", _PATH.sub("/home/guest/program", text)))
        text = _ID.sub(lambda found: self._id(found[0]), text)
        own = any(said in text for said in self._texts)
        beginning = _TAG.match(text)[0]
        return text if own or len(text) < PROSE or beginning == text else beginning + _SHORT

    def _id(self, found: str) -> str:
        number = self._ids.setdefault(found, f"{len(self._ids) + 1:x}")
        return re.sub(r"[0-9a-f]", "0", found)[: len(found) - len(number)] + number

    def _without_times(self, text: str) -> str:
        text = _ISO.sub(lambda found: self._moved_iso(found[0]), text)
        text = _NANOSECONDS.sub(lambda found: self._moved(found[0], 1), text)
        return _SECONDS.sub(lambda found: self._moved(found[0], 10**9), text)

    def _moved_iso(self, text: str) -> str:
        seconds = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        moved = int(self._moved(str(round(seconds * 10**6)), 1000))
        return f"{datetime.fromtimestamp(moved / 10**6, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"

    def _moved(self, digits: str, unit: int) -> str:
        nanoseconds = int(digits) * unit
        if self._first is None:
            self._first = nanoseconds
        moved = _START + nanoseconds - self._first
        return str(moved // unit)


def _is_dropped(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    is_named = isinstance(part.get("key"), str) and bool(_DROPPED.match(part["key"]))
    return is_named or part.get("event") in _EVENTS


def _without_nulls(value: Any) -> Any:
    """Return what is dumped in a text without members that hold nothing, which are most of it.

    A message has its `parts`, even if there are none.
    """
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if name == "parts" or part not in (None, [], {})}
        return {name: _without_nulls(part) for name, part in kept.items()}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value
