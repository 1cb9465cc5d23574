"""A report for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from worker.audit.report import PartitionReport, Report, Unaudited

DETAILS = 10
"""How many of what is missing or differs are told one by one."""

_REASONS: dict[Unaudited, str] = {
    "trimmed": "what came before them was trimmed from raw",
    "rewind": "raw was read again from further back than the ledger reaches",
    "no_vector": "a vector is neither in the changelog nor can its text be embedded",
    "other_model": "a vector cannot be had, as another model than the configured one made it",
}


def show(report: Report, console: Console) -> None:
    """Print the table, what else there is to know, and the first of what is wrong."""
    console.print(_table(report))
    for note in _notes(report):
        console.print(note)
    wrong = [*_wrong(report)]
    for line in wrong[:DETAILS]:
        console.print(line)
    if len(wrong) > DETAILS:
        console.print(f"and {len(wrong) - DETAILS} more; --json has them all")


def _table(report: Report) -> Table:
    table = Table("partition", box=None, pad_edge=False)
    for name in ("records", "waiting", "missing", "repeated", "differing", "novelty audited"):
        table.add_column(name, justify="right")
    for one in report.partitions:
        table.add_row(str(one.partition), *map(str, _row(one)))
    if len(report.partitions) > 1:
        totals = [sum(column) for column in zip(*map(_row, report.partitions), strict=True)]
        table.add_section()
        table.add_row("all", *map(str, totals))
    return table


def _row(one: PartitionReport) -> tuple[int, ...]:
    audited = one.novelty_exact + one.novelty_embedded
    return one.records, one.waiting, len(one.missing), one.repeated, len(one.differing), audited


def _notes(report: Report) -> Iterator[str]:
    parts = report.partitions
    counts = {
        "are of another policy than the settings': their score was not computed again": sum(
            one.other_policy for one in parts
        ),
        "have a novelty that was computed again from their texts": sum(one.novelty_embedded for one in parts),
        "have a score too near to the threshold to confirm their route by that": sum(
            len(one.near_threshold) for one in parts
        ),
        "were scored anew, as raw was read again from further back than the ledger reaches": report.rescored,
        "have no output, where outputs were trimmed": sum(one.outputs_trimmed for one in parts),
    }
    for reason, why in _REASONS.items():
        count = sum(one.novelty_unaudited.get(reason, 0) for one in parts)
        counts[f"have a novelty that could not be audited: {why}"] = count
    yield from (f"{count} records {what}" for what, count in counts.items() if count)
    if report.deleted:
        yield (
            f"{report.deleted} offsets are gone from {report.topic} without an output, deleted unread unless "
            f"they were a transaction's aborted records and markers: {', '.join(_stretches(report))}"
        )
    if report.unknown:
        yield f"{report.unknown} outputs come from no record of {report.topic} that is there"


def _stretches(report: Report) -> Iterator[str]:
    stretches = [(one.partition, *stretch) for one in report.partitions for stretch in one.deleted]
    for partition, first, last in stretches[:DETAILS]:
        yield f"{partition}/{first}" + (f" to {last}" if last > first else "")
    if len(stretches) > DETAILS:
        yield f"and {len(stretches) - DETAILS} more"


def _wrong(report: Report) -> Iterator[str]:
    for one in report.partitions:
        place = f"{report.topic}/{one.partition}"
        yield from (f"missing: {place}/{offset} has no output" for offset in one.missing)
        yield from (f"differs: {place}/{each.offset}: {each.what}" for each in one.differing)
