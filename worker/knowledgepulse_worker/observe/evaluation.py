"""What labels say of the policy: the file that a scheduled ``kp-worker policy evaluate --json`` writes.

Evaluating reads all labels and traces, and computes for minutes. A worker therefore only shows what another
process has found.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

MAX_BYTES = 4_194_304
"""Of a larger file, nothing is read."""

_HOLDS = ("promised", "withdrawn")


class _Domain(msgspec.Struct):
    traces: int
    fair: tuple[float, float, float] | None


class _LeftOut(msgspec.Struct):
    labels: int | None
    on: str


class _Promise(msgspec.Struct):
    outcome: str
    least: float
    share: float | None
    labels: int
    until: str | None
    agents: dict[str, float]


class _Evaluation(msgspec.Struct):
    policy: str
    domains: dict[str, _Domain]
    fitted: dict[str, _LeftOut]
    promises: dict[str, _Promise] = {}


class EvaluatedDomain(msgspec.Struct, frozen=True):
    """What labels say of a domain.

    Attributes:
        name: the domain.
        labels: the number of labels: of those since the fit, if its date is known, and otherwise of all.
        since: the date of the fit; None if the policy has no learned value there, or does not say to which
            labels it was fitted.
        auc: the AUC with its interval; None if there are too few labels.
    """

    name: str
    labels: int
    since: str | None
    auc: tuple[float, float, float] | None


class PromisedDomain(msgspec.Struct, frozen=True):
    """What is promised of a domain.

    Attributes:
        name: the domain.
        outcome: `promised`, `withdrawn`, `none` or `not known`.
        least: the least part of what passes that is promised to be worth keeping.
        share: the share of which that is promised; None for what passes now.
        labels: the number of the labels by which it is promised.
        until: the day of the last of their traces; None if it is not known.
        strangers: the agents of which there was no label, with their parts of the latest traces that passed;
            None for one that is not to be named.
    """

    name: str
    outcome: str
    least: float
    share: float | None
    labels: int
    until: str | None
    strangers: Sequence[tuple[str | None, float]] = ()


class LabelEvaluation(msgspec.Struct, frozen=True):
    """What labels say of the policy, and when; without a file, there is no time, policy or domain."""

    at: float | None = None
    policy: str | None = None
    domains: Sequence[EvaluatedDomain] = ()
    promises: Sequence[PromisedDomain] = ()

    @property
    def kept_promises(self) -> dict[str, bool]:
        """Whether each promise that was made still holds, by domain; of those that are not known, nothing."""
        outcomes = {promise.name: promise.outcome for promise in self.promises}
        return {name: told == "promised" for name, told in outcomes.items() if told in _HOLDS}


Passed = Mapping[str, Sequence[str | None]]
"""By domain, the agents of the latest traces that passed."""


def evaluation(path: Path, passed: Passed, named: Collection[str] | None = None) -> LabelEvaluation:
    """Return what a file of ``policy evaluate --json`` says.

    ``named``: the agents that may be named; None for all.
    """
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        about = path.stat()
        if about.st_size <= MAX_BYTES:
            evaluation = msgspec.json.decode(path.read_bytes(), type=_Evaluation)
            promises = [
                _promised(name, promise, passed.get(name, ()), named)
                for name, promise in evaluation.promises.items()
            ]
            return LabelEvaluation(about.st_mtime, evaluation.policy, [*_domains(evaluation)], promises)
    return LabelEvaluation()


def _domains(evaluation: _Evaluation) -> Iterator[EvaluatedDomain]:
    for name in evaluation.domains | evaluation.fitted:
        domain, fitted = evaluation.domains.get(name), evaluation.fitted.get(name)
        since = fitted.on if fitted is not None and fitted.labels is not None else None
        labels, auc = (domain.traces, domain.fair) if domain else (0, None)
        yield EvaluatedDomain(name, labels, since, auc)


def _promised(
    name: str, promise: _Promise, passed: Sequence[str | None], named: Collection[str] | None
) -> PromisedDomain:
    agents = Counter(agent or "" for agent in passed)
    strangers = [
        (agent if named is None or agent in named else None, count / len(passed))
        for agent, count in agents.most_common()
        if agent not in promise.agents
    ]
    told = {field: getattr(promise, field) for field in ("outcome", "least", "share", "labels", "until")}
    return PromisedDomain(name, **told, strangers=strangers if promise.outcome in _HOLDS else [])
