"""Run a row: load, faults, completion of all records, and the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chaos.brokers import Brokers
from chaos.long_lives import CONNECTIONS, DESCRIPTORS, GROWTH, LEDGER, MEMORY, MOST_CONNECTIONS, ROOM
from chaos.results import Outcome
from chaos.rows import Row
from chaos.trial import PARTITIONS, RING, Trial, running_trial
from knowledgepulse_worker.tools.audit import AuditReport, audit

_PATIENCE = 60.0
_PATIENCE_WITHOUT = 10.0
"""Seconds without output after which records count as missing; shorter if a mechanism is switched off."""

_MAX_DEFECTS = 5


async def play(
    row: Row, doses: Sequence[Any], brokers: Brokers, folder: Path, say: Callable[[str], None]
) -> Outcome:
    """Run a row and return its outcome, which :func:`judge` evaluates.

    Args:
        row: the row.
        doses: the doses of its fault.
        brokers: running brokers.
        folder: an empty folder for the workers' files and logs.
        say: called with a message for each step.

    Raises:
        AssertionError: the run did not complete.
    """
    async with running_trial(row, brokers, folder, say) as trial:
        await trial.fleet.start(row.workers)
        await trial.shared()
        await row.run(trial, doses)
        await trial.wrapped()
        await trial.settled(_PATIENCE_WITHOUT if row.without else _PATIENCE)
        await asyncio.gather(*map(trial.fleet.stop, list(trial.fleet.workers)))
        if row.restarts is not None:
            trial.notes["restarts"] = trial.fleet.restarts()
        report = await audit(trial.stream.settings)
        return _outcome(trial, report, len(doses))


def _outcome(trial: Trial, report: AuditReport, rounds: int) -> Outcome:
    witness = trial.witness
    wrong = [
        f"{record.partition}/{record.offset} ({record.key!r}): missing"
        for record in sorted(witness.missing, key=str)
    ]
    wrong += [f"{record.partition}/{record.offset} ({record.key!r}): altered" for record in witness.altered]
    for part in report.partitions:
        wrong += [f"{part.partition}/{record.offset}: {record.what}" for record in part.differing]
        wrong += [f"{part.partition}/{offset}: no ledger entry" for offset in part.without_entry]
        if part.shares_unaudited:
            wrong.append(f"{part.partition}: {part.shares_unaudited} ranks could not be audited")
        if part.unknown_policy:
            wrong += [f"{part.partition}: {part.unknown_policy} records under a policy that was not kept"]
    return Outcome(
        rounds=rounds,
        records=len(witness.raw),
        outputs=sum(map(len, witness.outputs.values())),
        repeats=witness.repeats,
        missing=max(len(witness.missing), report.missing),
        unexpected=len(witness.unexpected),
        differing=max(witness.differing, len(witness.altered), report.differing),
        without_entry=report.without_entry,
        audited=sum(part.novelty_exact for part in report.partitions),
        wrong=wrong[:_MAX_DEFECTS],
        resumes=trial.resumes,
        hits=trial.hits,
        notes=trial.notes | ({"dead letters": len(witness.dead_letters)} if witness.dead_letters else {}),
    )


def judge(row: Row, outcome: Outcome) -> None:
    """Raise an AssertionError with the outcome unless it is as required."""
    if row.without:
        assert outcome.differing, f"without the {row.without} nothing is wrong: {outcome}"
        return
    assert not outcome.missing, outcome
    assert not outcome.unexpected, outcome
    assert not outcome.differing, outcome
    assert not outcome.without_entry, outcome
    assert not outcome.wrong, outcome
    assert not outcome.repeats, outcome
    if row.restarts is not None:
        assert outcome.notes["restarts"] <= row.restarts * outcome.rounds, outcome
    assert all(outcome.hits), outcome
    if MEMORY in outcome.notes:
        early, late = outcome.notes[MEMORY]
        assert late <= GROWTH * early, outcome
        early, late = outcome.notes[DESCRIPTORS]
        assert late <= early, outcome
        assert max(outcome.notes[CONNECTIONS]) <= MOST_CONNECTIONS, outcome
        assert outcome.notes[LEDGER] <= PARTITIONS * (RING + ROOM), outcome
    assert outcome.audited, outcome
