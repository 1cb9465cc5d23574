"""Promises in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from knowledgepulse_curator.promises.certificate import fewest
from knowledgepulse_curator.promises.promise import Promise
from knowledgepulse_worker.message_text import counted, printable

_CHOSEN = {
    "random": "of traces chosen at random",
    "passing": "of passing traces chosen at random",
    "step": "that a plan asked for",
    "feedback": "of feedback",
}


def promise_lines(promises: Iterable[Promise]) -> Iterator[str]:
    """Yield the sentences on each promise."""
    for promise in promises:
        yield f"promise: {promise.domain}: {sentence(promise)}"
        yield from (f"promise: {promise.domain}: {more}" for more in _details(promise))


def sentence(promise: Promise) -> str:
    """Return what is promised, of which labels."""
    least = f"at least {promise.least:.0%} are worth keeping"
    said = f"{promise.confidence:.0%} confidence"
    floors = ", ".join(f"of {name} at least {part:.0%}" for name, part in promise.floors.items())
    if promise.outcome == "not known":
        return f"Not known: {'; '.join(promise.unknown)}."
    if promise.outcome == "withdrawn":
        return f"Withdrawn: labels since then do not say that {least}."
    if promise.outcome == "none":
        told = f"; {floors} are worth keeping ({said}; " if floors else f" ({said}; "
        return f"No share can be promised{told}{_labels(promise)})."
    if promise.share is None:
        return f"Of what passes now, {least} ({said}; {_labels(promise)})."
    if promise.share == 1:
        least = f"at least {promise.floors['all']:.0%} are worth keeping" if promise.floors else least
        return f"All may pass: {least} ({said}; {_labels(promise)})."
    return f"Of what passes at a share of {promise.share:g}, {least} ({said}; {_labels(promise)})."


def _labels(promise: Promise) -> str:
    by = " and ".join(printable(source) for source in promise.by)
    agents = [printable(agent) for agent in promise.agents if agent]
    of = f", {'agents' if len(agents) > 1 else 'agent'} {' and '.join(agents[:5])}" if agents else ""
    more = f" and {len(agents) - 5} others" if len(agents) > 5 else ""
    until = f", until {promise.until}" if promise.until else ""
    return f"{counted(promise.labels, 'label')} of {counted(promise.tasks, 'task')} by {by}{of}{more}{until}"


def _details(promise: Promise) -> Iterator[str]:
    if promise.outcome == "none":
        yield _settled(promise)
    if not promise.labels:
        return
    chosen = _CHOSEN[promise.sampling or "random"]
    odds = f", which kept runs may get {promise.odds:g} times as often" if promise.odds is not None else ""
    skipped = f"; {promise.skipped:,} were skipped, and count as not worth keeping" if promise.skipped else ""
    yield f"{promise.kept:,} of {counted(promise.labels, 'label')} {chosen}{odds} say keep{skipped}"
    if promise.every:
        yield "each trace has a label, so these are taken for the whole stream; nobody chose among them"
    if promise.out_of_fold and promise.outcome == "promised":
        yield _confirmed(promise)
    if promise.withheld:
        yield f"nothing is said of {counted(promise.withheld, 'trace')} that guards withhold"
    if promise.outcome != "not known" and promise.without_label:
        named = ", ".join(
            f"{part:.0%} by {printable(agent) or 'no named agent'}"
            for agent, part in promise.without_label.items()
        )
        yield f"no label speaks of a part of what passes: {named}"


def _settled(promise: Promise) -> str:
    if promise.needed is None:
        return (
            f"more labels would not settle it, as no share is measured above {promise.least:.0%}; the fewest "
            f"labels of passing traces that could promise it are {fewest(promise.least)}, with one bad"
        )
    return (
        f"about {promise.needed:,} independent labels of passing traces would settle it, if as many are "
        "worth keeping as at the best measured share"
    )


def _confirmed(promise: Promise) -> str:
    return (
        "each trace is ranked by a value that was fitted to other labels, and no theorem stands behind it: "
        f"{f'about {promise.needed:,}' if promise.needed else 'more'} later labels of passing traces, "
        f"chosen at random, would confirm it (`kp-worker policy evaluate --promise {promise.least:g}`)"
    )
