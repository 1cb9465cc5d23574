"""Hooks that are killed at each of their steps on the disk, and what the next one publishes.

Prints a pair for each moment: whether anything was kept or published then, and the native ids that the hook
and the next one have published.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from pathlib import Path

from knowledgepulse_worker.cli import entry
from knowledgepulse_worker.tools.publish import publication, publish_command, waiting_files
from support.hooks import converted_here

_STEPS = {"open", "os.link", "os.remove", "os.rename", "os.truncate", "os.utime"}
_KILLED = 9


def main(folder: Path) -> None:
    """Kill a hook at its first step, the next at its second, until one ends before."""
    publication.converted_apart = converted_here
    publish_command.go_on_apart = lambda: None
    moments = []
    for moment in count(1):
        place = folder / str(moment)
        place.mkdir()
        (place / "published").touch()
        is_killed = _hook(place, "s1", moment) == _KILLED
        was_kept = any(path.stat().st_size for path in (place / "published", *place.glob("spool/*")))
        if _hook(place, "s2", None) != 0:
            raise AssertionError(place)
        moments.append((was_kept, (place / "published").read_text().split()))
        if not is_killed:
            break
    print(json.dumps(moments))


def _hook(place: Path, name: str, moment: int | None) -> int:
    session, hook = place / f"{name}.jsonl", place / f"{name}.json"
    lines = [
        {
            "type": kind,
            "uuid": kind,
            "parentUuid": None,
            "sessionId": name,
            "message": {"content": "Fix it now"},
        }
        for kind in ("user", "assistant")
    ]
    session.write_text("\n".join(map(json.dumps, lines)))
    hook.write_text(json.dumps({"transcript_path": str(session)}))
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    waiting_files.publish_lines = lambda lines, publisher, _: _published(place, lines, publisher)
    if moment is not None:
        _kill_at(moment, place / "spool")
    entry.main(["publish", "--hook", "--spool", str(place / "spool"), str(hook)])
    raise AssertionError  # it exits


def _published(place: Path, lines, publisher) -> None:
    with (place / "published").open("a") as file:
        for line in lines:
            file.write(json.loads(line)["metadata"]["native_id"] + "\n")
            file.flush()
            publisher.published.confirmed += 1


def _kill_at(moment: int, spool: Path) -> None:
    steps = count(1)

    def step(event: str, arguments: tuple) -> None:
        if event in _STEPS and str(arguments[0]).startswith(str(spool)) and next(steps) == moment:
            os._exit(_KILLED)

    sys.addaudithook(step)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
