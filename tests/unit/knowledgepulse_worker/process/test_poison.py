"""Finding the deadly record by what processes told before they died."""

from __future__ import annotations

from knowledgepulse_kafka.records import Location
from knowledgepulse_worker.process.poison import PoisonSearch

A, B = Location(0, 7), Location(1, 3)


def died(search, *messages, was_killed=True):
    for message in messages:
        search.read(message)
    return search.end(was_killed=was_killed)


def at(location):
    """What a process tells that dies while a record is in progress alone."""
    return {"alone": [*location]}


def after_deaths(*locations, attempts=3, skip=False):
    """Return the caution after a first death, and then one at each location while it was alone."""
    search = PoisonSearch(attempts, skip=skip)
    died(search, {"below": [0, 64]}, {"below": [1, 64]})
    for location in locations:
        died(search, at(location))
    return search.caution()


def test_after_a_death_the_records_that_may_have_been_in_progress_are_named():
    search = PoisonSearch(3, skip=False)

    assert died(search, {"below": [0, 64]}, {"below": [1, 9]}, {"below": [0, 128]})

    assert search.caution().below == {0: 128, 1: 9}
    assert not search.caution().suspects


def test_an_end_that_no_record_caused_changes_nothing():
    search = PoisonSearch(3, skip=False)
    died(search, {"below": [0, 64]})
    before = search.caution()

    assert died(search, {"below": [0, 640]}, at(A), {"blameless": True}, was_killed=False)

    assert search.caution() == before


def test_a_record_that_kills_a_process_which_ends_for_another_reason_is_counted():
    search = PoisonSearch(3, skip=False)
    died(search, {"below": [0, 64]})

    died(search, {"blameless": True}, at(A))

    assert search.caution().suspects == {A}


def test_a_process_that_died_before_any_record_took_none():
    assert not died(PoisonSearch(3, skip=False))


def test_a_record_that_was_scored_is_not_counted():
    search = PoisonSearch(3, skip=False)

    died(search, at(A), {"alone": None})
    died(search, at(A), at(B))

    assert search.caution().suspects == {B}


def test_a_committed_record_is_cleared():
    """Otherwise a death much later would count against the record."""
    search = PoisonSearch(3, skip=True)
    died(search, at(A))
    died(search, at(B))
    died(search, at(B), {"committed": [0, 8]}, {"committed": [1, 3]})

    assert search.caution().suspects == search.caution().dead_letters == {B}


def test_a_record_deadly_even_as_a_dead_letter_is_skipped_only_if_allowed():
    deaths = [A] * 5
    assert after_deaths(*deaths).skipped == frozenset()
    assert after_deaths(*deaths[:4], skip=True).skipped == frozenset()
    assert after_deaths(*deaths, skip=True).skipped == {A}
