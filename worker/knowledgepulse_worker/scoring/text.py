"""The text of a trace that is embedded."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Literal

from knowledgepulse_schemas import ReasoningTrace

TraceText = Literal["sdk", "agent", "parts"]
"""Which text of a trace is embedded: see :func:`embedding_text`."""

OBJECTIVE_WORDS = 48
"""Maximum words of the objective in the text ``agent``, and of each of its two parts in ``parts``."""

MAX_CHARACTERS = 8192
"""Maximum length of the text ``agent``, several times the largest window: a longer trace costs no more."""

MAX_STEPS_CHARACTERS = 32_768
"""Maximum length of the steps in the text ``parts``."""

PART = "\0"
"""Separates the parts of a text, which weigh the same; white space would not do, since it does not count."""

# Scripts without spaces between words count by the character, long words such as URLs by 20 characters.
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]{{1,20}}")

_MAX_ENDING = OBJECTIVE_WORDS * 21
"""Characters with so many words: each at most 20 and a space."""

# Complete escapes only, so that what is matched of a string that was cut can still be decoded.
_JSON = re.compile(
    r'"(?P<string>(?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*)"?|(?P<scalar>[^\s\[\]{}:,"\\]+)|.[\s\[\]{}:,]*',
    re.DOTALL,
)


def embedding_text(
    trace: ReasoningTrace, text: TraceText = "sdk", inputs: Iterable[str] | None = None
) -> str:
    """Return the text of a trace that is embedded.

    ``sdk`` is the objective and the contents of all steps, joined with single spaces. A step without content
    adds an empty part, as in the SDK, so there can be two spaces in a row.

    ``agent`` is the first :data:`OBJECTIVE_WORDS` of the objective, then content, tool and input of all steps
    but observations, up to :data:`MAX_CHARACTERS`. Of an input's JSON, it has the names and the values.

    ``parts`` has three with :data:`PART` between them: the first :data:`OBJECTIVE_WORDS` of the objective; as
    many of its last, if there are more, since a prompt that all runs share can be before or after the task;
    and of the steps what ``agent`` has, and the observations of no tool, which are what the user said later,
    up to :data:`MAX_STEPS_CHARACTERS`.

    Args:
        trace: the trace.
        text: which text.
        inputs: the JSON of each step's input, empty without one; None takes the trace's own, which
            :func:`knowledgepulse_worker.records.decode.decode_trace` leaves out. ``sdk`` ignores them.
    """
    if text == "sdk":
        return trace.task.objective + " " + " ".join(step.content or "" for step in trace.steps)
    steps = _steps(trace, _own_inputs(trace) if inputs is None else inputs, replies=text == "parts")
    objective = trace.task.objective
    if text == "agent":
        return _joined(itertools.chain([_beginning(objective[:MAX_CHARACTERS])], steps), MAX_CHARACTERS)
    first = _beginning(objective[:MAX_CHARACTERS])
    last = _ending(objective[len(first) :])
    parts = (first, last, _joined(steps, MAX_STEPS_CHARACTERS))
    return PART.join(part.replace(PART, " ") for part in parts)


def _joined(parts: Iterable[str], room: int) -> str:
    found = []
    for part in parts:
        if part:
            found.append(part[:room])
        room -= len(part) + 1  # an empty part counts too, to bound the work
        if room <= 0:
            break
    return " ".join(found)


def _steps(trace: ReasoningTrace, inputs: Iterable[str], *, replies: bool) -> Iterator[str]:
    for step, own_input in zip(trace.steps, inputs, strict=True):
        if step.type == "observation":
            yield (step.content or "") if replies and step.tool is None else ""
            continue
        yield step.content or ""
        yield step.tool.name if step.tool else ""
        yield from _names_and_values(own_input[:MAX_CHARACTERS])


def _beginning(objective: str) -> str:
    end = 0
    for word in islice(_WORD.finditer(objective), OBJECTIVE_WORDS):
        end = word.end()
    return objective[:end]


def _ending(objective: str) -> str:
    end = " ".join(objective.rsplit(maxsplit=OBJECTIVE_WORDS)[-OBJECTIVE_WORDS:])[-_MAX_ENDING:]
    starts = [word.start() for word in _WORD.finditer(end)][-OBJECTIVE_WORDS:]
    return end[starts[0] :] if starts else ""


def _own_inputs(trace: ReasoningTrace) -> Iterator[str]:
    for step in trace.steps:
        yield "" if step.input is None else json.dumps(step.input, ensure_ascii=False, default=str)


def _names_and_values(text: str) -> Iterator[str]:
    """Yield the strings and numbers of JSON, which may be cut; an empty part for what is between them."""
    for token in _JSON.finditer(text):
        string, scalar = token["string"], token["scalar"]
        if string is not None:
            yield json.loads(f'"{string}"', strict=False) if "\\" in string else string
        else:
            yield "" if scalar in (None, "null") else scalar


MAX_ID_LENGTH = 200
"""Maximum characters of a trace id stored with its score; the schema sets no bound."""


def bounded_id(trace_id: str) -> str:
    """Return a trace's id; beyond :data:`MAX_ID_LENGTH`, its beginning and a hash of the whole."""
    if len(trace_id) <= MAX_ID_LENGTH:
        return trace_id
    digest = blake2b(trace_id.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{trace_id[: MAX_ID_LENGTH - len(digest) - 1]}…{digest}"
