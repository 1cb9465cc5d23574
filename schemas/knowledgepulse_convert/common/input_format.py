"""An input format: how its documents are recognised and how their runs are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import cleandoc
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import AnyOf
from knowledgepulse_convert.common.reading import count_others, each, parse_json, unwrap, without
from knowledgepulse_convert.common.session_log import Reader, lines_in, run_of_lines
from knowledgepulse_convert.common.verdicts import Verdicts

_CONVERSATIONS = ("messages", "conversations", "conversation", "trajectory", "history", "chat", "dialog")
"""Members of rows that hold messages."""
_ACCEPTS = re.compile(r"^Accepts: (.*?)\.$(?=\n\S|\n*\Z)", re.MULTILINE | re.DOTALL)
_HEAD = 50
"""Lines by which a session's format is detected: it may begin with lines of any kind."""


_Recognises = Callable[[Any], bool]
_RunsOf = Callable[[Any], Iterator[ir.Run | ConversionError]]


@dataclass(frozen=True, slots=True)
class InputFormat:
    """A format that can be converted to traces: all that the command line, errors and documents say of it.

    Attributes:
        name: The format's name on the command line, and the ``framework`` of its traces.
        text: A docstring for the tables of documents. It says what users have, in a paragraph ``Accepts:`` or
            else in its first sentence, where this is published (``Source:``), and what it was compared with.
        members: Names of members that are typical of the format, separated by spaces.
        recognises: Returns whether a document has this format.
        runs: Yields the runs of a document, with an error in place of a run that cannot be read. Raises a
            ConversionError if the document has another format.
        is_fragment: Returns whether a line of a file is part of a larger document. The spans of a trace, for
            example, may be on several lines.
        streams: Whether ``runs`` also accepts an iterator of a file's lines, including unknown lines.
        needed: Names of members, of which a line has at least all of one set; empty if none is known.
        coding_agent: Whether its program is a coding agent, whose traces have the task domain ``code`` unless
            told otherwise.
        unrecorded: What its documents do not tell of a run, in the plural, such as ``exit codes``.
        places: Where programs keep them on Linux and macOS, unless told otherwise: the name of each program,
            with patterns of paths as of ``glob``, which begin with ``~/``.
        ids_in_path: The end of a file's path that tells the ids of the ``session`` and of its ``agent``, if
            its lines do not; the agent ``main`` is the session's.
    """

    name: str
    text: str | None
    members: str
    recognises: _Recognises
    runs: _RunsOf
    is_fragment: _Recognises = lambda line: False
    streams: bool = False
    needed: Sequence[set[str]] = ()
    coding_agent: bool = False
    unrecorded: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ids_in_path: re.Pattern[str] | None = None

    def identify(self, run: ir.Run, path: str) -> None:
        """Set the ids of a run that only the path of its file tells."""
        found = self.ids_in_path.search(path) if self.ids_in_path and run.native_id is None else None
        if found and found["agent"] == "main":
            run.native_id = found["session"]
        elif found:
            run.native_id, run.parent_id = f"{found['session']}/{found['agent']}", found["session"]

    @property
    def usual_domain(self) -> str:
        """The task domain of its traces, unless told otherwise."""
        return "code" if self.coding_agent else "default"

    @property
    def accepts(self) -> str:
        """What users have, as the text says it, in one line."""
        text = cleandoc(self.text or "")
        stated = _ACCEPTS.search(text)
        said = stated[1] if stated else text.split("\n", 1)[0].removesuffix(".")
        return " ".join(said.split()).replace("``", "`")

    def may_fit(self, members: set[str]) -> bool:
        """Return whether a document may have this format whose first lines have these members."""
        return not self.needed or any(needed <= members for needed in self.needed)

    def fits(self, document: Any) -> bool:
        """Return whether a document has this format.

        One that nests too deeply to tell has not, nor one with a list or object where the format has a word.
        """
        try:
            return self.recognises(document)
        except (RecursionError, TypeError, ConversionError):
            return False


def are_all(recognises: Callable[[Any], bool], document: Any, within: str = "") -> bool:
    """Check a document, or all items of a list; the list may be the member ``within`` of the document."""
    document = unwrap(document, within)
    return bool(document) and all(map(recognises, document if isinstance(document, list) else [document]))


def runs_within(
    document: Any, name: str, runs_of: Callable[[Any], Iterator[ir.Run | ConversionError]]
) -> Iterator[ir.Run | ConversionError]:
    """Yield the runs of the list in an object's member, or of the document if it has no such list.

    The losses of the first run include the object's other members.
    """
    items, beside = unwrap(document, name), Losses()
    if items is not document:
        count_others(document, {name}, "", beside)
    for run in runs_of(items):
        if isinstance(run, ir.Run):
            run.losses.merge(beside)
            beside = Losses()
        yield run


def judged(run_of: Callable[[Any, str], ir.Run], record: Any, path: str) -> ir.Run:
    """Return the run of a row, with what the row's other members say of its end."""
    verdicts = Verdicts(record)
    run = run_of(verdicts.rest, path)
    run.outcome = run.outcome.over(verdicts.outcome)
    run.ending = run.ending or verdicts.ending
    run.task_id = run.task_id or verdicts.task_id
    return run


def of_records(
    recognises: Callable[[Any], bool], run_of: Callable[[Any, str], ir.Run], within: str = ""
) -> tuple[_Recognises, _RunsOf]:
    """Return how records that are runs are told and read: one record, a list of them, or a list in a member.

    Args:
        recognises: Returns whether a value is a record.
        run_of: Returns the run of a record. Its second argument is the record's path in the document.
        within: The name of the member that may hold the list.
    """
    return (
        lambda document: are_all(recognises, document, within),
        lambda document: runs_within(document, within, lambda records: each(records, run_of)),
    )


def members_of(document: Any) -> set[str]:
    """Return the names of the members of a document's first lines."""
    return {name for line in lines_in(document)[:_HEAD] if isinstance(line, dict) for name in line}


def of_session(
    recognises: Callable[[dict[str, Any]], bool], runs: _RunsOf
) -> tuple[_Recognises, _RunsOf, _Recognises, bool, Sequence[set[str]]]:
    """Return how session logs are told and read, whose lines are read one by one.

    Args:
        recognises: Returns whether a line is of the format.
        runs: Yields the runs of the lines.
    """

    def has_line(document: Any) -> bool:
        return any(isinstance(line, dict) and recognises(line) for line in lines_in(document)[:_HEAD])

    return has_line, runs, lambda line: True, True, recognises.needed if isinstance(recognises, AnyOf) else ()


def of_lines(
    recognises: Callable[[dict[str, Any]], bool], reader: Callable[[], Reader]
) -> tuple[_Recognises, _RunsOf, _Recognises, bool, Sequence[set[str]]]:
    """Return how session logs with a single run are told and read; a new reader makes it of their lines."""
    return of_session(recognises, lambda document: run_of_lines(document, reader()))


def of_messages(
    recognises: _Recognises,
    are_messages: Callable[[list[Any]], bool],
    messages_of: Callable[[list[Any], str, Losses], list[ir.Message]],
    run_of_record: Callable[[Any, str], ir.Run],
) -> tuple[_Recognises, _RunsOf]:
    """Return how a vendor's messages are told and read: a list is a run, and so is a record with some."""

    def runs(document: Any) -> Iterator[ir.Run | ConversionError]:
        document = _joined(document)
        if isinstance(document, list) and are_messages(document):
            losses = Losses()
            yield ir.Run(messages_of(document, "", losses), losses=losses)
        else:
            yield from each(document, lambda record, path: judged(run_of_record, record, path))

    return lambda document: recognises(_joined(document)), runs


def _joined(document: Any) -> Any:
    """Return a record, or a list of them, with the members of its request and its response at its top.

    Completion logs keep the response of a model call beside its request, or each in a member. If both have a
    member of the same name, that of the request stays below ``request``, where it is a loss; but the row's
    own ``id`` is its run's.
    """
    if isinstance(document, list):
        return [_joined(item) for item in document]
    if not isinstance(document, dict) or "role" in document:
        return document
    record = _with_messages(document)
    request, response = record.get("request"), record.get("response")
    if isinstance(request, dict) and "messages" in request and "messages" not in record:
        record = _over(request, without(record, "request"), "record")
    messages = record.get("messages")
    if isinstance(response, dict) and (isinstance(messages, list) or "input" in record):
        own = {"id": document["id"]} if document.get("id") is not None else {}
        beside = {"response": {"id": response["id"]}} if own and "id" in response else {}
        record = _over({**response, **own}, without(record, "response"), "request") | beside
    elif isinstance(response, str) and isinstance(messages, list):
        answer = {"role": "assistant", "content": response}
        record = without(record, "response")
        is_told = bool(messages) and isinstance(messages[-1], dict) and answer.items() <= messages[-1].items()
        record["messages"] = messages if is_told else [*messages, answer]
    return record


def _with_messages(record: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a data set with its messages in ``messages``, also if they are there as JSON text."""
    for name in _CONVERSATIONS if not isinstance(record.get("messages"), list) else ():
        values = parse_json(record.get(name))
        if isinstance(values, list) and values and all(map(_is_message, values)):
            rest = without(record, name)
            return rest | {"messages": [_with_content(value) for value in values]}
    match record:
        case {"prompt": [*asked], "completion": [*answered], **rest} if all(map(_is_message, asked)):
            return {**rest, "messages": [*asked, *answered]}
        case {"messages": [*asked], "output_message": answer, **rest} if _is_message(answer):  # Humanloop's
            return {**rest, "messages": [*asked, answer]}
    return record


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and "role" in value
        and not {"content", "text", "tool_calls"}.isdisjoint(value)
    )


def _with_content(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose text is its ``content``."""
    if "content" in message or not isinstance(message.get("text"), str):
        return message
    return {("content" if name == "text" else name): value for name, value in message.items()}


def _over(members: dict[str, Any], others: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the members of two objects; others with the name of a different member are below ``name``."""
    hidden = {
        member: others[member] for member in others if member in members and others[member] != members[member]
    }
    return {**others, **members, **({name: hidden} if hidden else {})}
