"""Tracers whose exports have a record a call: a table says where its ids, times, input and output are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import starmap
from typing import Any

from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all, runs_within
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import Path, Places
from knowledgepulse_convert.common.reading import as_list, as_text, items_of, text_or_none, without
from knowledgepulse_convert.spans.dialects import Kind, attributes_of, runs_of_spans
from knowledgepulse_convert.spans.genai import evaluation_event
from knowledgepulse_convert.spans.span import Event, Span
from knowledgepulse_convert.spans.tree import nanoseconds

Placed = Iterator[tuple[str, dict[str, Any]]]
"""Records, each with its path in the document."""


def placed(document: Any, above: str = "") -> Placed:
    """Yield the records of a list, or a document that is one; raise a ConversionError if one is no object."""
    for place, record in items_of(document):
        if not isinstance(record, dict):
            raise ConversionError(f"{above}{place}: an object is required")
        yield f"{above}{place}", record


@dataclass(frozen=True)
class Records:
    """What a tracer writes of a call.

    Attributes:
        id: Where a record's id is, as the next members say where others are.
        parent: The id of the record around it, or a list that begins with it.
        kinds: The kinds of records that are calls; another without a parent is an agent's.
        error: The message of a failure, or true where none is told.
        scores: What judged the call: values by name, or a list of names and values.
        above: What stands before the paths of values that are not read.
    """

    id: Path
    trace: Path
    parent: Path
    kind: Path
    kinds: dict[str, Kind]
    title: Path
    start: Path
    end: Path
    input: Path
    output: Path
    error: Path
    scores: Path | None = None
    service: Path | None = None
    server: Path | None = None
    above: str = ""

    @cached_property
    def _read(self) -> Places:
        values = (getattr(self, field.name) for field in fields(self))
        return Places(value for value in values if isinstance(value, Path))

    def format(
        self,
        name: str,
        text: str | None,
        recognises: Callable[[Any], bool],
        *,
        members: str,
        within: str = "",
        records: Callable[[Any], Placed] = placed,
    ) -> InputFormat:
        """Return the format of files that hold such records.

        Args:
            name: The format's name.
            text: The docstring that describes it.
            recognises: Checks an item of a document.
            members: The names of members that are typical of it.
            within: The member that may hold the list.
            records: Yields the records of a document, in the form that the table describes.
        """
        return InputFormat(
            name,
            text,
            members,
            lambda document: are_all(recognises, document, within),
            lambda document: runs_within(
                document, within, lambda items: runs_of_spans(starmap(self.span, records(items)))
            ),
            is_fragment=recognises,
        )

    def span(self, path: str, record: dict[str, Any]) -> Span:
        """Return a record as a span; ``path`` is the record's in the document."""
        span_id = self._required(self.id, record, path)
        losses, parent, error = Losses(), self.parent.of(record), self.error.of(record)
        parent = text_or_none(next(iter(parent), None) if isinstance(parent, list) else parent)
        for name, rest in self._read.rest_of(record, self.above):
            losses.add(name, rest)
        return Span(
            trace_id=text_or_none(self.trace.of(record)) or span_id,
            id=span_id,
            parent_id=parent,
            name=as_text(self.title.of(record)),
            attributes=attributes_of(
                self.kinds.get(as_text(self.kind.of(record))),
                self.input.of(record),
                self.output.of(record),
                self.server and self.server.of(record),
            ),
            start=nanoseconds(self.start.of(record)),
            end=nanoseconds(self.end.of(record)),
            failed=bool(error),
            message="" if error is True else as_text(error),
            resource={"service.name": self.service and self.service.of(record)},
            events=list(_judgements(self.scores and self.scores.of(record))),
            losses=losses,
        )

    def _required(self, path: Path, record: dict[str, Any], above: str) -> str:
        value = path.of(record)
        if not isinstance(value, str):
            raise ConversionError(f"{above}.{path}: a text is required".lstrip("."))
        return value


def _judgements(scores: Any) -> Iterator[Event]:
    if isinstance(scores, dict):
        yield from (evaluation_event(name, value) for name, value in scores.items())
    for score in as_list(scores):
        told = score if isinstance(score, dict) else {"score": score}
        judged = evaluation_event(told.get("name"), told.get("value"))
        yield Event(judged.name, judged.attributes | without(told, "name", "value"))
