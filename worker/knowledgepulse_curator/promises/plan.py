"""A plan of labels for a promise: random traces of what would pass, the best share first.

Each step judges some traces of a share, and only if these promise enough, the next one judges as many of a
wider share. A trace's place in the order is a keyed hash of its id, so that the first traces of a wider share
are the first ones of the narrower share, in proportion, and others just below. There are three looks at the
labels of a step, each with a third of the error: whoever looks whenever they like is promised too much. The
steps are a fixed sequence, so that all that is promised holds together; see :mod:`.certificate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from secrets import token_hex

import msgspec
import numpy as np

from knowledgepulse_curator.labels.groups import groups_of
from knowledgepulse_curator.labels.labels import Label, drawn_place
from knowledgepulse_curator.promises.certificate import ERROR, evidence, fewest, p_value
from knowledgepulse_curator.promises.promise import Asked, Promise, promise
from knowledgepulse_curator.promises.sample import Sample, Stream, of_one_kind
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.terminal.lines import file_errors
from knowledgepulse_worker.tools.terminal.reports import write_text

LADDER = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""The shares that are judged, in this order."""

LOOKS = 3
FEWEST = 40
"""The fewest traces of the best tenth for which there is a plan."""


class Step(msgspec.Struct, frozen=True):
    """The traces of a share that are to be labelled, in this order."""

    share: float
    ids: list[str]


class Plan(msgspec.Struct, frozen=True):
    """What is to be labelled, by domain; a domain without steps has too few traces for a plan.

    Attributes:
        least: the least part of what passes that is to be worth keeping.
        policy: the digest of the policy by which traces would pass.
        key: by which places are drawn.
    """

    least: float
    policy: str
    key: str
    domains: dict[str, list[Step]]

    @property
    def ids(self) -> dict[str, None]:
        """The traces of all steps, each once."""
        return dict.fromkeys(name for steps in self.domains.values() for step in steps for name in step.ids)


def plan_file(labels: Path) -> Path:
    """Return the file of the plan beside a file of labels."""
    return labels.with_name(f"{labels.name}.plan.json")


def plan_of(path: Path) -> Plan:
    """Read a plan; raise an InputError if the file has none."""
    with file_errors(path, "read"):
        text = path.read_bytes()
    try:
        return msgspec.json.decode(text, type=Plan)
    except DECODE_ERRORS as error:
        raise InputError(f"{path}: not a plan of `policy label --promise`: {error}") from None


def opened_plan(path: Path, stream: Stream, least: float) -> Plan:
    """Return the plan of a file, or make one of the stream as it is now, and write it.

    Raises:
        InputError: the plan of the file is for another part or another policy.
    """
    if not path.exists():
        plan = _made(stream, least, token_hex(8))
        write_text(path, msgspec.json.encode(plan).decode())
        return plan
    plan = plan_of(path)
    if (plan.least, plan.policy) != (least, stream.policy.digest):
        told = f"promises {plan.least:g} of policy {plan.policy}"
        raise InputError(f"{path}: {told}; label for another promise in another file")
    return plan


def _made(stream: Stream, least: float, key: str) -> Plan:
    domains = {}
    for name in stream.domains:
        shares = [(share, stream.passing(name, share)) for share in LADDER]
        most = max(FEWEST, LOOKS * fewest(least, error=ERROR / LOOKS))
        domains[name] = [
            Step(share, sorted((one.id for one in passing), key=lambda id_: drawn_place(id_, key))[:most])
            for share, passing in shares
            if len(shares[0][1]) >= FEWEST
        ]
    return Plan(least, stream.policy.digest, key, domains)


@dataclass(frozen=True)
class Progress:
    """How far the labels of a domain's plan are.

    Attributes:
        certified: the widest share that they promise; None without one.
        told: the labels by which that is promised, or those of the last look.
        waiting: the traces to label for the next look; none if the plan is at its end.
        share, look: the step and the look that these are for.
    """

    certified: float | None
    told: list[str]
    waiting: list[str]
    share: float
    look: int


def progress(
    plan: Plan, domain: str, records: Mapping[str, ScoredRecord], labels: Mapping[str, Label]
) -> Progress:
    """Return how far the labels of a domain are; of a step, only those of its own traces count.

    ``records``: the traces of the plan by their ids. ``labels``: by id; one of a skipped trace is an answer.
    """
    certified, told = None, list[str]()
    for step in plan.domains[domain]:
        there = [name for name in step.ids if name in records]  # others are no longer in the topics
        for look in range(1, LOOKS + 1):
            ids = there[: ceil(len(there) * look / LOOKS)]
            if waiting := [name for name in ids if name not in labels]:
                return Progress(certified, told, waiting, step.share, look)
            if _promises(plan, [records[name] for name in ids], [labels[name] for name in ids]):
                certified, told = step.share, ids
                break
        else:
            return Progress(certified, told or ids, [], step.share, LOOKS)
    return Progress(certified, told, [], LADDER[-1], LOOKS)


def _promises(plan: Plan, records: Sequence[ScoredRecord], labels: Sequence[Label]) -> bool:
    kept = np.array([label.is_kept(0.5) and not label.skipped for label in labels], bool)
    tasks = np.unique([name for name, _ in groups_of(records, labels)], return_inverse=True)[1]
    return p_value(evidence(kept, tasks), plan.least) <= ERROR / LOOKS


def first_words(least: float) -> str:
    """Say how many labels are needed at least, before anyone begins."""
    number = fewest(least, error=ERROR / LOOKS)
    return (
        f"to promise {least:.0%} of a domain takes {number} labels of passing traces at least, with one bad"
    )


def plan_lines(plan: Plan, found: Mapping[str, Progress]) -> Iterator[str]:
    """Yield sentences on what is promised, and what comes next."""
    for name, steps in plan.domains.items():
        if not steps:
            yield f"plan: {name}: random traces, as its best tenth has fewer than {FEWEST}"
        if name not in found:
            continue
        at = found[name]
        certified = (
            f"a share of {at.certified:g} may pass, of which at least {plan.least:.0%} are worth keeping"
            if at.certified is not None
            else "no share is promised yet"
        )
        then = (
            f"{counted(len(at.waiting), 'label')} to look {at.look} of {LOOKS} at a share of {at.share:g}"
            if at.waiting
            else "stop: more labels of this plan would not widen it"
        )
        yield f"plan: {name}: {certified}; {then}"


def chosen_by(plan: Plan, labels: Iterable[Label]) -> dict[str, Label]:
    """Return the labels of a plan's traces, which say that it asked for them."""
    return {label.id: label for label in labels if label.sampling == "step" and label.id in plan.ids}


def planned_promises(plan: Plan, stream: Stream, labels: Sequence[Label], asked: Asked) -> dict[str, Promise]:
    """Return what the labels of a plan promise of each of its domains.

    Raises:
        InputError: the plan is for another policy.
    """
    if plan.policy != stream.policy.digest:
        raise InputError(f"the plan is for the policy {plan.policy}, and not for {stream.policy.digest}")
    told = chosen_by(plan, of_one_kind(labels))
    records = {record.id: record for record in stream.records if record.id in plan.ids}
    found = {}
    for name, steps in plan.domains.items():
        if not steps or name not in stream.domains:
            continue
        at = progress(plan, name, records, told)
        share, pairs = at.certified, [(records[one], told[one]) for one in at.told]
        sample = Sample(pairs, "step", np.ones((1, len(pairs)), bool), [share or steps[0].share])
        made = promise(name, sample, stream, replace(asked, least=plan.least))
        outcome = made.outcome if made.outcome == "not known" else "none" if share is None else "promised"
        key = asked.key if outcome == "promised" else ""
        found[name] = replace(made, outcome=outcome, share=share, floors={}, key=key)
    return found
