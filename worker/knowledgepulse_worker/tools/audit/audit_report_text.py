"""Terminal output of a report."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.tools.audit.audit_report import AuditReport, PartitionReport, UnauditedReason
from knowledgepulse_worker.tools.terminal.reports import new_table

MAX_DETAILS = 10
"""Maximum number of defects listed one by one."""

_REASONS: dict[UnauditedReason, str] = {
    "trimmed": "earlier records were deleted from the raw topic",
    "rewind": "the raw topic was reread from before the ledger",
    "no_vector": "a vector is not in the changelog, and its text cannot be embedded",
    "other_model": "a vector is from another model than the configured one",
}


_COLUMNS = ("records", "waiting", "missing", "repeated", "differing", "without entry", "novelty audited")


def words_of(report: AuditReport) -> Iterator[Table | str]:
    """Yield the table, the notes and the first defects."""
    table = new_table("partition", *_COLUMNS)
    for part in report.partitions:
        table.add_row(str(part.partition), *(f"{count:,}" for count in _row(part)))
    if len(report.partitions) > 1:
        totals = [sum(column) for column in zip(*map(_row, report.partitions), strict=True)]
        table.add_section()
        table.add_row("all", *(f"{count:,}" for count in totals))
    yield table
    yield from _notes(report)
    wrong = [*_wrong(report)]
    yield from wrong[:MAX_DETAILS]
    if len(wrong) > MAX_DETAILS:
        yield f"and {len(wrong) - MAX_DETAILS:,} more; --json lists them all"


def _row(report: PartitionReport) -> tuple[int, ...]:
    audited = report.novelty_exact + report.novelty_embedded
    return (
        report.records,
        report.waiting,
        len(report.missing),
        report.repeated,
        len(report.differing),
        len(report.without_entry),
        audited,
    )


def _notes(report: AuditReport) -> Iterator[str]:
    parts = report.partitions
    counts = {
        "named a policy that was not kept, so their score could not be recomputed": sum(
            part.unknown_policy for part in parts
        ),
        "had a novelty that was recomputed from their texts": sum(part.novelty_embedded for part in parts),
        "scored too close to the threshold to confirm the decision from their texts": sum(
            len(part.near_threshold) for part in parts
        ),
        "got new scores when the raw topic was reread from before the ledger": report.rescored,
        "could not be checked, because the output topics were trimmed": sum(
            part.outputs_trimmed for part in parts
        ),
        "had a rank that could not be audited, because earlier scores are not all known": sum(
            part.shares_unaudited for part in parts
        ),
        "began the last scores of their domain anew, since the ledger was cut": sum(
            part.shares_begun for part in parts
        ),
    }
    for reason, why in _REASONS.items():
        count = sum(part.novelty_unaudited.get(reason, 0) for part in parts)
        counts[f"had a novelty that could not be audited: {why}"] = count
    yield from (f"{counted(count, 'record')} {what}" for what, count in counts.items() if count)
    if report.missing and report.compacted:
        yield (
            f"what is missing may have been compacted away: {', '.join(report.compacted)} with "
            "cleanup.policy=compact, which keeps only the last output for each key"
        )
    if report.deleted:
        yield (
            f"{counted(report.deleted, 'offset')} had no output when deleted from {report.topic}: records "
            f"deleted before they were scored, or a transaction's aborted records and markers: "
            f"{', '.join(_ranges(report))}"
        )
    if report.unknown:
        yield f"{counted(report.unknown, 'output')} did not belong to an existing record of {report.topic}"


def _ranges(report: AuditReport) -> Iterator[str]:
    ranges = [(part.partition, *offsets) for part in report.partitions for offsets in part.deleted]
    for partition, first, last in ranges[:MAX_DETAILS]:
        yield f"{partition}/{first}" + (f" to {last}" if last > first else "")
    if len(ranges) > MAX_DETAILS:
        yield f"and {len(ranges) - MAX_DETAILS} more"


def _wrong(report: AuditReport) -> Iterator[str]:
    for part in report.partitions:
        partition = f"{report.topic}/{part.partition}"
        yield from (f"missing: {partition}/{offset} has no output" for offset in part.missing)
        yield from (f"repeated: {partition}/{offset} has several outputs" for offset in part.repeats)
        yield from (
            f"differs: {partition}/{difference.offset}: {difference.what}" for difference in part.differing
        )
        yield from (
            f"without entry: {partition}/{offset} has an output, but no entry in the changelog"
            for offset in part.without_entry
        )
