"""Find the records that kill worker processes.

A record that merely happens to be in progress when a process is killed is cleared when the next process
finishes it. Records that were in progress at two deaths are isolated, so that the next death identifies the
culprit. Only a record that was alone in progress at the last of ``limits.poison_attempts`` deaths is poison.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from knowledgepulse_worker.records.journal import Suspect, Treatment
from knowledgepulse_worker.records.record import Location

_DEATHS_BEFORE_ISOLATION = 2


def after_death(
    suspects: Mapping[Location, Suspect], in_progress: AbstractSet[Location], attempts: int, *, skip: bool
) -> dict[Location, Suspect]:
    """Return the suspects for the next process.

    Args:
        suspects: the dead process's suspects that it did not clear.
        in_progress: the records that it was working on.
        attempts: the number of deaths after which a record becomes a dead letter; after as many more, it is
            skipped.
        skip: whether a record may be skipped.
    """
    alone = len(in_progress) == 1
    # Other suspects keep their deaths, since two workers may take turns with two partitions and die at a
    # different record in each.
    return dict(suspects) | {
        location: _escalated(suspects.get(location, Suspect()), attempts, alone=alone, skip=skip)
        for location in in_progress
    }


def _escalated(suspect: Suspect, attempts: int, *, alone: bool, skip: bool) -> Suspect:
    suspect = replace(suspect, deaths=suspect.deaths + 1)
    if suspect.deaths >= attempts and alone:
        if suspect.treatment < Treatment.DEAD_LETTER:
            return Suspect(treatment=Treatment.DEAD_LETTER)
        if skip:
            return Suspect(treatment=Treatment.SKIPPED)
    if suspect.deaths >= min(attempts, _DEATHS_BEFORE_ISOLATION):
        return replace(suspect, treatment=max(suspect.treatment, Treatment.ISOLATED))
    return suspect
