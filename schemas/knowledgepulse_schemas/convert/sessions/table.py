"""Sessions and messages that a table describes: a layout, and what tells the format from others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from knowledgepulse_schemas.convert.common import hub
from knowledgepulse_schemas.convert.common.errors import ConversionError
from knowledgepulse_schemas.convert.common.input_format import InputFormat, are_all, judged, of_lines
from knowledgepulse_schemas.convert.common.pattern import Conditions, Path, Pattern, at
from knowledgepulse_schemas.convert.common.reading import count_others, each, unwrap
from knowledgepulse_schemas.convert.sessions.layout import Layout, Line, Part
from knowledgepulse_schemas.convert.sessions.layout_reader import LayoutReader


@dataclass(frozen=True)
class Table(Layout):
    """A format that a layout describes; the other attributes are those of an ``InputFormat``.

    Attributes:
        first: What one of the format's lines has; one of several alternatives.
    """

    name: str
    text: str | None
    members: str
    first: tuple[Conditions, ...]
    coding_agent: bool = False

    def of_lines(self) -> InputFormat:
        """Return the format of a session, whose lines are read one by one."""
        found = of_lines(self._is_first, self._reader)
        return InputFormat(self.name, self.text, self.members, *found, coding_agent=self.coding_agent)

    def of_message_lines(self) -> InputFormat:
        """Return a format that only lines have: a list of them is another format."""
        own = self.of_lines()
        return replace(
            own, recognises=lambda document: isinstance(document, dict) and own.recognises(document)
        )

    def of_messages(self) -> InputFormat:
        """Return the format of messages in a list or in a record."""
        return InputFormat(
            self.name, self.text, self.members, self._fits, self._runs, coding_agent=self.coding_agent
        )

    @cached_property
    def _patterns(self) -> list[Pattern]:
        return list(map(Pattern, self.first))

    def _is_first(self, value: Any) -> bool:
        return any(pattern.fits(value) for pattern in self._patterns)

    def _reader(self) -> LayoutReader:
        return LayoutReader(self)

    def _within(self, document: Any) -> str:
        """Return the member of a record that holds the messages."""
        names = (self.within or ()) if isinstance(document, dict) else ()
        return next((name for name in names if name in document), "")

    def _recognises(self, document: Any) -> bool:
        values = unwrap(document, self._within(document))
        return isinstance(values, list) and are_all(self._is_first, values)

    def _fits(self, document: Any) -> bool:
        return self._recognises(document) or are_all(self._recognises, document)

    def _runs(self, document: Any) -> Iterator[hub.Run | ConversionError]:
        if self._recognises(document) or not isinstance(document, list):
            yield judged(self._run_of, document, "")
        else:
            yield from each(document, lambda record, path: judged(self._run_of, record, path))

    def _run_of(self, document: Any, path: str) -> hub.Run:
        if not self._recognises(document):
            raise ConversionError(f"{path or 'the document'}: no messages of {self.name}")
        reader = self._reader()
        if isinstance(document, dict):
            own = self.id or at("id")
            count_others(document, {self._within(document), *own.names}, "", reader.losses)
            reader.transcript.began(own.of(document))
        for value in unwrap(document, self._within(document)):
            reader.add(value)
        return reader.finish()


def of_messages_alike(
    name: str,
    text: str | None,
    members: str,
    message: Conditions,
    role: Path,
    parts: Part,
    time: tuple[Path, ...] = (),
    **options: Any,
) -> InputFormat:
    """Return the format of messages that are all alike; ``options`` are those of a :class:`Table`."""
    line = Line(message, role, parts, stop=(at("finish_reason"),))
    return Table(
        name, text, members, (message,), lines=(line,), time=time, ended=True, **options
    ).of_messages()
