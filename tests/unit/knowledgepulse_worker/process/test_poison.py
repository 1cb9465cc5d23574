"""Finding the deadly record by the records in progress at each death."""

from __future__ import annotations

import pytest

from knowledgepulse_worker.process.poison import after_death
from knowledgepulse_worker.records.journal import Suspect, Treatment
from knowledgepulse_worker.records.record import Location

A, B = Location(0, 7), Location(1, 3)
DEAD_LETTER = Suspect(treatment=Treatment.DEAD_LETTER)


def after_deaths(*deaths, attempts=3, skip=False):
    suspects = {}
    for in_progress in deaths:
        suspects = after_death(suspects, in_progress, attempts, skip=skip)
    return suspects


def test_records_in_progress_at_two_deaths_are_isolated():
    assert after_deaths({A, B}) == {A: Suspect(1), B: Suspect(1)}
    alone = Suspect(2, Treatment.ISOLATED)
    assert after_deaths({A, B}, {A, B}) == {A: alone, B: alone}


def test_only_a_record_alone_at_the_last_death_is_dead_lettered():
    assert after_deaths({A}, {A}, {A}) == {A: DEAD_LETTER}
    assert after_deaths({A, B}, {A, B}, {A})[A] == DEAD_LETTER
    treatments = {suspect.treatment for suspect in after_deaths(*[{A, B}] * 9).values()}
    assert treatments == {Treatment.ISOLATED}


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_a_record_is_dead_lettered_after_the_configured_number_of_deaths(attempts):
    assert after_deaths(*[{A}] * (attempts - 1), attempts=attempts).get(A) != DEAD_LETTER
    assert after_deaths(*[{A}] * attempts, attempts=attempts) == {A: DEAD_LETTER}


def test_deadly_records_of_partitions_that_come_and_go_in_turn_are_both_found():
    """Two workers took turns with two partitions, and died in each at its deadly record, without end."""
    assert after_deaths(*[{A}, {B}] * 3) == {A: DEAD_LETTER, B: DEAD_LETTER}


def test_an_exit_without_records_in_progress_changes_nothing():
    assert after_deaths({A}, set(), {A}, set(), {A}) == {A: DEAD_LETTER}


def test_a_suspect_that_was_not_reached_keeps_its_deaths():
    """Two deadly records that are reached in varying order are both found."""
    assert after_deaths({A, B}, {A, B}, {A}, {B}) == {A: DEAD_LETTER, B: DEAD_LETTER}


def test_a_record_deadly_even_as_a_dead_letter_is_skipped_only_if_allowed():
    deaths = [{A}] * 6
    assert after_deaths(*deaths) == {A: Suspect(3, Treatment.DEAD_LETTER)}
    assert after_deaths(*deaths[:5], skip=True) == {A: Suspect(2, Treatment.DEAD_LETTER)}
    assert after_deaths(*deaths, skip=True) == {A: Suspect(treatment=Treatment.SKIPPED)}
