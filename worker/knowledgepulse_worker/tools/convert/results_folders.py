"""Folders of results: which of their files may hold runs, and which of them belong together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from knowledgepulse_convert.benchmarks.atif import HARBOR_RESULT, NAT_SCORES
from knowledgepulse_convert.unread import is_trace
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.convert.unpacking import PACKED
from knowledgepulse_worker.tools.terminal.arguments import DATABASE
from knowledgepulse_worker.tools.terminal.lines import MAX_LINE, file_errors, json_or_none

_TRAJECTORIES = ("agent/trajectory*.json", "steps/*/agent/trajectory*.json")
"""The trajectories in the folder of a trial of Harbor, whose other files repeat them or belong to them."""
_RESULT = "result.json"
_SAMPLES = "workflow_output_atif.json"
_SCORES = "*_output.json"
"""What evaluators of NeMo Agent Toolkit write beside the samples; a file begins with its evaluator's name."""
_HEAD = 4096
"""Bytes of a file that are looked at for a zero byte, which no text has."""


def files_in(folder: Path, refused: Callable[[InputError], None]) -> Iterator[Path]:
    """Yield the files of a folder that may hold runs, at any depth, in the order of their names.

    Links are not followed, and what is hidden is not looked at. ``refused`` is told of folders in it that
    cannot be read, and of trials of Harbor without a trajectory.
    """
    waiting = [(folder, True)]
    while waiting:
        path, is_folder = waiting.pop()
        if not is_folder:
            yield path
            continue
        try:
            if _read_result(path) is None:
                waiting += reversed(_entries(path))
            else:
                yield from _of_trial(path)
        except InputError as error:
            refused(error)


def _entries(folder: Path) -> list[tuple[Path, bool]]:
    """Return the files and folders in a folder by name, and whether each is a folder."""
    with file_errors(folder, "read"), os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
        kinds = [(entry, entry.is_dir(follow_symlinks=False)) for entry in entries]
        return [
            (Path(entry.path), is_folder)
            for entry, is_folder in kinds
            if not entry.name.startswith(".") and (is_folder or entry.is_file(follow_symlinks=False))
        ]


def _of_trial(folder: Path) -> list[Path]:
    """Return the trajectories of a trial of Harbor.

    Raises:
        InputError: there are none. What else may lie there are files of the agent's own, which nothing joins
            to the trial's result.
    """
    found = sorted(
        path for pattern in _TRAJECTORIES for path in folder.glob(pattern) if not path.is_symlink()
    )
    if not found:
        raise InputError(
            f"{folder}: not converted: a trial of Harbor without agent/trajectory.json: its result has no "
            f"run to judge; files of the agent's own are read, unjudged, if you name {folder / 'agent'}"
        )
    return found


def is_binary(path: Path) -> bool:
    """Return whether a file holds no text, nothing packed that may be one, and no database."""
    with file_errors(path, "read"), path.open("rb") as file:
        head = file.read(_HEAD)
    return b"\0" in head and not head.startswith((*PACKED, DATABASE))


def holds_traces(path: Path) -> bool:
    """Return whether the first line of a file is a trace."""
    with file_errors(path, "read"), path.open("rb") as file:
        return is_trace(json_or_none(file.readline(MAX_LINE)))


def joined(name: str, lines: Iterable[bytes]) -> Iterable[bytes]:
    """Return the content of a file, with what another file says of its run.

    A trajectory in the folder of a trial of Harbor gets the trial's result, and each sample of NeMo Agent
    Toolkit its scores.
    """
    if Path(name).name == _SAMPLES:
        return _scored(Path(name).parent, b"".join(lines))
    result = _result_of(Path(name))
    if result is None:
        return lines
    text = b"".join(lines)
    trajectory = json_or_none(text)
    if not isinstance(trajectory, dict):
        return [text]  # which the conversion tells
    return json.dumps({**trajectory, HARBOR_RESULT: result}, indent=0).encode().splitlines(keepends=True)


def _scored(folder: Path, text: bytes) -> list[bytes]:
    """Return the samples in a file of NeMo Agent Toolkit with what the evaluators beside it gave them."""
    samples = json_or_none(text)
    if not isinstance(samples, list):
        return [text]  # which the conversion tells
    scores: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(_SCORES)):
        told = None if path.is_symlink() else json_or_none(path.read_bytes())
        items = told.get("eval_output_items") if isinstance(told, dict) else None
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and not item.get("error"):
                name = path.name.removesuffix(_SCORES[1:])
                scores.setdefault(str(item.get("id")), {})[name] = item.get("score")
    joined_to = [
        {**sample, NAT_SCORES: scores.get(str(sample.get("item_id")), {})}
        if isinstance(sample, dict)
        else sample
        for sample in samples
    ]
    return json.dumps(joined_to, indent=0).encode().splitlines(keepends=True)


def _result_of(path: Path) -> dict[str, Any] | None:
    """Return what Harbor says of a trajectory's trial, or of its step."""
    agent = path.parent
    if agent.name != "agent" or not path.match("trajectory*.json"):
        return None
    if result := _read_result(agent.parent):
        return result
    if agent.parent.parent.name != "steps" or not (result := _read_result(agent.parent.parent.parent)):
        return None
    steps = (step for step in result.get("step_results") or () if isinstance(step, dict))
    own = next((step for step in steps if step.get("step_name") == agent.parent.name), None)
    about: dict[str, Any] = {name: result[name] for name in ("task_name", "reward_valid") if name in result}
    return None if own is None else {**about, **own}


def _read_result(trial: Path) -> dict[str, Any] | None:
    path = trial / _RESULT
    if not path.is_file() or path.is_symlink():
        return None
    try:
        result = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) and "trial_name" in result else None
