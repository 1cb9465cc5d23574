"""Shrink a history that violates an invariant to the events and records that it needs."""

from __future__ import annotations

from dataclasses import replace

from simulation.play import play


def shrink(outcome, budget=300):
    """Return the smallest history found that violates the same oracle, within a number of trials."""
    wanted = _oracle(outcome)
    trials = 0
    while trials < budget:
        for candidate in _smaller(outcome.history):
            trials += 1
            found = play(candidate)
            if wanted in {what.split(":")[0] for what in found.violations}:
                outcome = found
                break
            if trials >= budget:
                break
        else:
            break
    return outcome


def _oracle(outcome):
    return outcome.violations[0].split(":")[0]


def _smaller(history):
    """Yield histories that are one step smaller: half the records, an event or record less, or simpler."""
    publications, events = history.publications, history.events
    if len(publications) > 3:
        half = len(publications) // 2
        yield replace(history, publications=publications[:half])
        yield replace(history, publications=publications[half:])
    for number in range(len(events)):
        yield replace(history, events=events[:number] + events[number + 1 :])
    for number in range(len(publications)):
        yield replace(history, publications=publications[:number] + publications[number + 1 :])
    setting = history.setting
    if setting.pods > 1 and all(event.pod < setting.pods - 1 for event in events):
        yield replace(history, setting=replace(setting, pods=setting.pods - 1))
    for name, plain in (
        ("redacts", False),
        ("max_age", False),
        ("compacts", False),
        ("small", ()),
        ("ttl", None),
    ):
        if getattr(setting, name, plain) != plain:
            yield replace(history, setting=replace(setting, **{name: plain}))
