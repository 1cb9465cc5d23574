"""What the deaths of a worker's processes say about the records that they died at.

A record that happens to be in progress when a process is killed is innocent: the next process finishes it,
and it is cleared. What is in progress at one death after another is taken alone, so that the next death tells
which record it was. Only a record that was alone at the last of ``limits.poison_attempts`` deaths is poison.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from worker.journal import Place, Suspect, Treatment

_DEATHS_TO_BE_ALONE = 2


def after_death(
    suspects: Mapping[Place, Suspect], in_progress: AbstractSet[Place], attempts: int, *, skip: bool
) -> dict[Place, Suspect]:
    """Return the suspects for the next process.

    Args:
        suspects: those that the dead process was given and did not clear.
        in_progress: what it was working on.
        attempts: deaths in a row after which a record is buried, or skipped when burying it is deadly too.
        skip: whether a record may be skipped.
    """
    if not in_progress:  # it ended for a reason that is no record's
        return dict(suspects)
    known = {
        place: suspect
        for place, suspect in suspects.items()
        if place in in_progress or suspect.treatment is not Treatment.WATCHED
    }
    alone = len(in_progress) == 1
    died_at = {
        place: _escalated(known.get(place, Suspect()), attempts, alone=alone, skip=skip)
        for place in in_progress
    }
    return known | died_at


def _escalated(suspect: Suspect, attempts: int, *, alone: bool, skip: bool) -> Suspect:
    suspect = replace(suspect, deaths=suspect.deaths + 1)
    if suspect.deaths >= attempts and alone:
        if suspect.treatment < Treatment.BURIED:
            return Suspect(treatment=Treatment.BURIED)
        if skip:
            return Suspect(treatment=Treatment.SKIPPED)
    if suspect.deaths >= min(attempts, _DEATHS_TO_BE_ALONE):
        return replace(suspect, treatment=max(suspect.treatment, Treatment.ALONE))
    return suspect
