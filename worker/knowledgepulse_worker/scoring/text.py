"""The text of a trace that is embedded."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Literal, Protocol

import msgspec

TraceText = Literal["sdk", "agent", "parts"]
"""The name of a text that can be embedded (see :func:`embedding_text`)."""


class ToolLike(Protocol):
    """A tool, of which only the name is read."""

    @property
    def name(self) -> str: ...  # noqa: D102 - as the schema has them, like the next ones


class StepLike(Protocol):
    """The members of a step that are read."""

    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def tool(self) -> ToolLike | None: ...  # noqa: D102
    @property
    def content(self) -> str | None: ...  # noqa: D102
    @property
    def input(self) -> Any: ...  # noqa: D102
    @property
    def output_summary(self) -> str | None: ...  # noqa: D102


class TaskLike(Protocol):
    """A task, of which only the objective is read."""

    @property
    def objective(self) -> str: ...  # noqa: D102


class OutcomeLike(Protocol):
    """An outcome, of which only the summary is read."""

    @property
    def result_summary(self) -> str: ...  # noqa: D102


class TraceLike(Protocol):
    """The members of a trace that are read, whatever decoded it."""

    @property
    def task(self) -> TaskLike: ...  # noqa: D102
    @property
    def steps(self) -> Sequence[StepLike]: ...  # noqa: D102
    @property
    def outcome(self) -> OutcomeLike: ...  # noqa: D102


OBJECTIVE_WORDS = 48
"""Maximum words of the objective in the text ``agent``, and of each of the objective's parts in ``parts``."""

MAX_CHARACTERS = 8192
"""Maximum length of the text ``agent``, several times the largest window, so that the cost is bounded."""

MAX_STEPS_CHARACTERS = 32_768
"""Maximum length of the steps in the text ``parts``."""

PART_SEPARATOR = "\0"
"""Separates the parts of a text, which have equal weight; embedders ignore white space, so it cannot."""

# Scripts without spaces between words count by the character, long words such as URLs by 20 characters.
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]{{1,20}}")
_FIRST_WORDS = re.compile(rf"(?:\s*+(?:{_WORD.pattern})){{0,{OBJECTIVE_WORDS}}}+")

_MAX_ENDING = OBJECTIVE_WORDS * 21
"""Maximum characters of that many words, with at most 20 characters and a space each."""

# The pattern matches only complete escapes, so that the match can be decoded even if the string was cut.
_STRING = r'[^"\\]*(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*)*'
_JSON = re.compile(
    rf'"(?P<string>{_STRING})"?|(?P<scalar>[^\s\[\]{{}}:,"\\]+)|.[\s\[\]{{}}:,]*',
    re.DOTALL,
)
_decode = json.JSONDecoder(strict=False).decode


def embedding_text(trace: TraceLike, text: TraceText = "sdk") -> str:
    """Return the text of a trace that is embedded.

    ``sdk`` joins the objective and the contents of all steps with single spaces. A step without content adds
    an empty text, as in the SDK, so there can be two spaces in a row.

    ``agent`` joins the first :data:`OBJECTIVE_WORDS` words of the objective with the content, tool and input
    of all steps except observations, up to :data:`MAX_CHARACTERS`. It includes the names and values of an
    input's JSON.

    ``parts`` consists of three parts, which :data:`PART_SEPARATOR` separates:

    1. the first :data:`OBJECTIVE_WORDS` words of the objective;
    2. the last :data:`OBJECTIVE_WORDS` of its remaining words, since a prompt that all runs share can come
       before or after the task;
    3. the texts of the steps that ``agent`` includes, and observations without a tool, which are the user's
       later messages, up to :data:`MAX_STEPS_CHARACTERS`.

    Args:
        trace: the trace.
        text: the name of the text.
    """
    if text == "sdk":
        return trace.task.objective + " " + " ".join(step.content or "" for step in trace.steps)
    if text == "agent":
        beginning = _beginning(trace.task.objective)
        return _joined(itertools.chain([beginning], _steps(trace, replies=False)), MAX_CHARACTERS)
    steps = _joined(_steps(trace, replies=True), MAX_STEPS_CHARACTERS)
    return _in_parts((*_ends(trace.task.objective), steps))


def words_text(trace: TraceLike) -> str:
    """Return a text with exactly the words of each part of the text ``parts``, in a fraction of the time."""
    return _in_parts(word_texts(trace))


def text_in_parts(objective: str, steps: str) -> str:
    """Return the text ``parts`` of an objective and the text of a trace's steps."""
    return _in_parts((*_ends(objective), steps))


def _in_parts(texts: Iterable[str]) -> str:
    return PART_SEPARATOR.join(text.replace(PART_SEPARATOR, " ") for text in texts)


def word_texts(trace: TraceLike) -> tuple[str, str, str]:
    """Return texts with exactly the words of the parts of the text ``parts``, in a fraction of the time."""
    ends, found, room = _ends(trace.task.objective), list[str](), MAX_CHARACTERS - len(trace.steps)
    for step in trace.steps:
        text = step.content or ""
        if step.type == "observation":
            text = text if step.tool is None else ""
        elif step.tool or step.input:
            text = f"{text} {step.tool.name if step.tool else ''} {_unparsed(input_json(step.input))}"
        found.append(text)
        room -= len(text)
        if room < 0:  # a quarter of MAX_STEPS_CHARACTERS, from which on it may have to be cut
            return *ends, _joined(_steps(trace, replies=True), MAX_STEPS_CHARACTERS)
    return *ends, " ".join(found)


def _unparsed(text: str) -> str:
    """Return JSON as it is, if the words between its punctuation are those of its names and values."""
    if "\\" in text or "null" in text:
        return " ".join(_names_and_values(text[:MAX_CHARACTERS]))
    return text


def _ends(objective: str) -> tuple[str, str]:
    first = _beginning(objective)
    words = objective[len(first) :].rsplit(maxsplit=OBJECTIVE_WORDS)[-OBJECTIVE_WORDS:]
    end = " ".join(words)[-_MAX_ENDING:]
    starts = [word.start() for word in _WORD.finditer(end)][-OBJECTIVE_WORDS:]
    return first, end[starts[0] :] if starts else ""


def _joined(parts: Iterable[str], room: int) -> str:
    kept = []
    for part in parts:
        if part:
            kept.append(part[:room])
        room -= len(part) + 1  # an empty part counts, too, to bound the work
        if room <= 0:
            break
    return " ".join(kept)


def _steps(trace: TraceLike, *, replies: bool) -> Iterator[str]:
    for step in trace.steps:
        if step.type == "observation":
            yield (step.content or "") if replies and step.tool is None else ""
            continue
        yield step.content or ""
        yield step.tool.name if step.tool else ""
        yield from _names_and_values(input_json(step.input)[:MAX_CHARACTERS])


def _beginning(objective: str) -> str:
    words = _FIRST_WORDS.match(objective, 0, MAX_CHARACTERS)
    return words[0] if words else ""


def input_json(given: dict[str, Any] | msgspec.Raw | None) -> str:
    """Return the JSON of a step's input, empty without one; the steps of a decoded record have it as JSON."""
    if isinstance(given, msgspec.Raw):
        return str(given, "utf-8")
    return "" if given is None else json.dumps(given, ensure_ascii=False, default=str)


def _names_and_values(text: str) -> list[str]:
    """Return the strings and numbers of JSON, which may be cut off, and an empty text for other tokens."""
    return [
        (_decode(f'"{string}"') if "\\" in string else string) or ("" if scalar == "null" else scalar)
        for string, scalar in _JSON.findall(text)
    ]


MAX_ID_LENGTH = 200
"""Maximum characters of a trace id stored with its score; the schema sets no bound."""


def bounded_id(trace_id: str) -> str:
    """Return a trace's id, replacing the end of an id above :data:`MAX_ID_LENGTH` by a hash of the whole."""
    if len(trace_id) <= MAX_ID_LENGTH:
        return trace_id
    digest = blake2b(trace_id.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{trace_id[: MAX_ID_LENGTH - len(digest) - 1]}…{digest}"
