"""Scores of files or of a backend's runs for people: a table of the best, and what the scores tell."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from statistics import median

from rich.table import Table

from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.policy import Policy, places
from knowledgepulse_worker.scoring import (
    ScoredRecord,
    decide,
    explain_score,
    override_effects,
    similarity_text,
)
from knowledgepulse_worker.tools.common.scored_records import JUDGED, ending_text, excerpt
from knowledgepulse_worker.tools.terminal.fitted import (
    Name,
    common_folder,
    one_line,
    shown_folder,
    wide_table,
)

FIFTH = 0.2
"""The share that the report tries on the traces: that of the quickstart."""

_ROWS = 20
"""Traces in the table, so that the best are in sight when it ends."""


_MEANING = "a high score means complete and varied work; it does not mean that the answer is right"


def best_first(records: Sequence[ScoredRecord]) -> list[ScoredRecord]:
    """Return traces in the order of their scores."""
    return sorted(records, key=lambda record: -record.score.quality_score)


def report_of(records: Sequence[ScoredRecord], policy: Policy, noun: str) -> Iterator[str | Table]:
    """Yield a table of the best traces, and a report in words; text from producers is escaped.

    A folder that holds all traces is named once, above the table.

    Args:
        records: the scored traces, one or more; their sources are the names that people know.
        policy: the policy that gave the scores. Its decisions are told only if it has a rule of its own.
        noun: what was scored, such as ``trace``.
    """
    folder = common_folder({record.source for record in records})
    ordered = [
        replace(record, source=printable(record.source.removeprefix(folder)))
        for record in best_first(records)
    ]
    fifth = _best_fifth(ordered)
    if folder:
        yield f"{noun}s in {shown_folder(folder)}"
    yield _table(ordered[:_ROWS], fifth, noun, decides=policy.has_own_rule)
    if len(ordered) > _ROWS:
        yield f"and {len(ordered) - _ROWS:,} more, which --json prints"
    values = [record.score.quality_score for record in ordered]
    yield ""
    yield (
        f"{counted(len(values), noun)}: scores from {values[-1]:.2f} to {values[0]:.2f}, "
        f"median {median(values):.2f}"
    )
    yield _MEANING
    yield _ended(ordered)
    yield _passed(ordered, policy)
    yield f"{len(fifth):,} would pass by share = {FIFTH:g}, the best fifth of each domain"
    yield ""
    yield from _why(ordered, policy)


def _table(ordered: Sequence[ScoredRecord], fifth: Collection[int], noun: str, *, decides: bool) -> Table:
    decision = ["DECISION"] if decides else []
    place, text = noun.upper(), "OBJECTIVE → RESULT"
    table = wide_table(
        *("RANK", "SCORE", *decision, "TOP 20%", "ENDING", "DOMAIN", "STEPS", place, text),
        figures={"RANK", "SCORE", "STEPS"},
        fitted={"DOMAIN", place, text},
    )
    for rank, record in enumerate(ordered, start=1):
        table.add_row(
            str(rank),
            f"{record.score.quality_score:.4f}",
            *([record.score.decision] if decides else []),
            "yes" if rank in fifth else "",
            ending_text(record.ending, judged=record.judged),
            one_line(printable(record.score.domain)),
            str(record.counts.steps) if record.counts else "-",
            Name(record.source),
            one_line(excerpt(record)),
        )
    return table


def _best_fifth(ordered: Sequence[ScoredRecord]) -> set[int]:
    """Return the ranks of the best fifth of each domain, without what the policy withholds."""
    domains: defaultdict[str, list[int]] = defaultdict(list)
    for rank, record in enumerate(ordered, start=1):
        if record.score.withheld is None:
            domains[record.score.domain].append(rank)
    return {rank for ranks in domains.values() for rank in ranks[: places(FIFTH, len(ranks))]}


def passing_ranks(ordered: Sequence[ScoredRecord], policy: Policy) -> set[int]:
    """Return the ranks of the traces that pass: by the policy, or by a share of a fifth if none is chosen."""
    if not policy.has_own_rule:
        return _best_fifth(ordered)
    return {rank for rank, record in enumerate(ordered, start=1) if decide(record.score).kept}


def _passed(records: Sequence[ScoredRecord], policy: Policy) -> str:
    passed = sum(decide(record.score).kept for record in records)
    withheld = sum(record.score.withheld is not None for record in records)
    if policy.has_own_rule:
        told = f"{passed:,} pass" + (f", and {withheld:,} are withheld," if withheld else "")
        return f"{told} by the policy: {_rules(records)}"
    told = f", and {withheld:,} would be withheld" if withheld else ""
    return f"no share or threshold is set; {passed:,} would pass by the SDK's {_rules(records)}{told}"


def _ended(records: Sequence[ScoredRecord]) -> str:
    """Say how the runs ended, and how many of them somebody judged, as far as the traces tell it."""
    endings = Counter(ending_text(record.ending) for record in records).most_common()
    judges = Counter(record.judged for record in records)
    told = {True: f"by somebody ({JUDGED})", False: "by nobody", None: "not told"}
    return (
        f"ended: {', '.join(f'{count:,} {ending}' for ending, count in endings)}; "
        f"judged: {', '.join(f'{judges[by]:,} {words}' for by, words in told.items() if judges[by])}"
    )


def _rules(records: Sequence[ScoredRecord]) -> str:
    """Name the shares and thresholds that decide."""
    shares = sorted({record.score.share for record in records if record.score.share is not None})
    thresholds = sorted({record.score.threshold for record in records if record.score.share is None})
    return " or ".join(
        [*(f"share {share:g}" for share in shares), *(f"threshold {each:g}" for each in thresholds)]
    )


def _why(ordered: Sequence[ScoredRecord], policy: Policy) -> Iterator[str]:
    """Explain the score of the best trace; what it lacks is told only if the policy has a rule of its own."""
    best = ordered[0]
    explanation = explain_score(best, policy)
    if explanation is None:
        return
    yield f"the best is {best.source}, for its"
    for part in explanation.parts:
        name = part.dimension.replace("_", " ")
        yield f"  {name:18} {part.value:.4f}, which gives {part.points:.4f} of at most {part.weight:g}"
    yield from (f"  override {name}: {effect}" for name, effect in override_effects(best.score).items())
    if best.score.nearest is not None:
        similarity = similarity_text(best.score)
        names = (record.source for record in ordered if record.id == best.score.nearest)
        nearest = next(names, printable(best.score.nearest))
        yield f"its nearest earlier one, {nearest}, has a similarity of {similarity}"
    if policy.has_own_rule:
        yield explanation.verdict
        yield from (f"  {remedy}" for remedy in explanation.remedies)
