"""Lists of scored traces for people: lines for a pipe, and lines that fit a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.terminal.printable import time_text
from knowledgepulse_worker.tools.common.scored_records import ending_text, excerpt
from knowledgepulse_worker.tools.terminal.fitted import common_folder, middle_out, shown_folder

_COLUMNS = "{:24}  {:24}  {:16}  {:6}  {:10}  {:11}  {:45}  {:>5}  {}"
_HEADS = ("SOURCE", "TIME", "DOMAIN", "SCORE", "DECISION", "ENDING", "ID", "STEPS", "OBJECTIVE → RESULT")
_WIDE = 160
"""Columns of a terminal from which times and ids are shown beside the rest."""

_LEAST = {"OBJECTIVE → RESULT": 18, "ID": 12, "SOURCE": 12, "DOMAIN": 8}
"""The cells that a narrow terminal shortens, the first ones first, and the columns that are left to each."""

_FOLLOWED = {"SOURCE": 14, "DOMAIN": 10, "SCORE": 6, "DECISION": 10, "ENDING": 11, "STEPS": 5}
"""The columns of a terminal whose next lines are not known yet; the rest is the last cell's."""

_NAMES = {"SOURCE", "ID"}
"""Cells that are shortened in their middle."""


def lines(records: Sequence[ScoredRecord]) -> Iterator[str]:
    """Yield heads and traces as lines of any length."""
    yield _COLUMNS.format(*_HEADS)
    for record in records:
        yield _COLUMNS.format(*_cells(record, record.source))


def fitted(records: Sequence[ScoredRecord], width: int) -> Iterator[str]:
    """Yield heads and traces as lines of a terminal; the topic or folder of all is named once, above them.

    Rich's tables are not used: 10,000 rows take them 8 s of CPU time, and these lines less than one.

    Args:
        records: the traces, one or more.
        width: the terminal's. A narrow one has no room for times and ids; sources name the traces too.
    """
    folder = common_folder({record.source for record in records})
    if folder:
        yield f"traces in {shown_folder(folder)}"
    left_out = set() if width >= _WIDE else {"TIME", "ID"}
    shown = [at for at, head in enumerate(_HEADS) if head not in left_out]
    cells = (_HEADS, *(_cells(record, record.source.removeprefix(folder)) for record in records))
    rows = [[row[at] for at in shown] for row in cells]
    widths = _widths([_HEADS[at] for at in shown], rows, width)
    for row in rows:
        fitting = (_cell(*item) for item in zip(widths, row, widths.values(), strict=True))
        yield " ".join(fitting).rstrip()


def followed(width: int | None) -> Callable[[ScoredRecord | None], str]:
    """Return a function from a trace to its line, or from None to the heads, before the next one is known.

    ``width``: the terminal's; None for a pipe, whose lines are those of :func:`lines`.
    """
    if width is None:
        return lambda record: _COLUMNS.format(*(_cells(record, record.source) if record else _HEADS))
    last = _HEADS[-1]
    widths = {**_FOLLOWED, last: max(width - sum(_FOLLOWED.values()) - len(_FOLLOWED), _LEAST[last])}

    def line(record: ScoredRecord | None) -> str:
        cells = dict(zip(_HEADS, _cells(record, record.source) if record else _HEADS, strict=True))
        return " ".join(_cell(head, cells[head], room) for head, room in widths.items()).rstrip()

    return line


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> dict[str, int]:
    """Return how wide each column is, by its head."""
    columns = zip(heads, zip(*rows, strict=True), strict=True)
    widths = {head: max(map(cell_len, cells)) for head, cells in columns}
    excess = sum(widths.values()) + len(widths) - 1 - width
    for head, least in _LEAST.items():
        if head in widths:
            less = min(max(excess, 0), max(widths[head] - least, 0))
            widths[head], excess = widths[head] - less, excess - less
    return widths


def _cell(head: str, text: str, width: int) -> str:
    """Return a text in exactly so many columns of a terminal."""
    if head == "STEPS":
        return text.rjust(width)
    if cell_len(text) > width:
        text = middle_out(text, width) if head in _NAMES else f"{set_cell_size(text, width - 1)}…"
    return set_cell_size(text, width)


def _cells(record: ScoredRecord, source: str) -> tuple[str, ...]:
    """Return a trace's cells by the heads; text from producers is escaped."""
    return (
        printable(source),
        "-" if record.timestamp_ms is None else time_text(record.timestamp_ms),
        printable(record.score.domain),
        f"{record.score.quality_score:.4f}",
        record.score.decision,
        ending_text(record.ending, judged=record.judged),
        printable(record.id),
        str(record.counts.steps) if record.counts else "-",
        excerpt(record),
    )
