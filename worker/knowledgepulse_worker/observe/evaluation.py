"""What labels say of the policy: the file that a scheduled ``kp-worker policy evaluate --json`` writes.

Evaluating reads all labels and traces, and computes for minutes. A worker therefore only shows what another
process has found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

MAX_BYTES = 4_194_304
"""Of a larger file, nothing is read."""


class _Domain(msgspec.Struct):
    traces: int
    fair: tuple[float, float, float] | None


class _LeftOut(msgspec.Struct):
    labels: int | None
    on: str


class _Evaluation(msgspec.Struct):
    policy: str
    domains: dict[str, _Domain]
    fitted: dict[str, _LeftOut]


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


class LabelEvaluation(msgspec.Struct, frozen=True):
    """What labels say of the policy, and when; without a file, there is no time, policy or domain."""

    at: float | None = None
    policy: str | None = None
    domains: Sequence[EvaluatedDomain] = ()


def evaluation(path: Path) -> LabelEvaluation:
    """Return what a file of ``policy evaluate --json`` says."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        about = path.stat()
        if about.st_size <= MAX_BYTES:
            evaluation = msgspec.json.decode(path.read_bytes(), type=_Evaluation)
            return LabelEvaluation(about.st_mtime, evaluation.policy, [*_domains(evaluation)])
    return LabelEvaluation()


def _domains(evaluation: _Evaluation) -> Iterator[EvaluatedDomain]:
    for name in evaluation.domains | evaluation.fitted:
        domain, fitted = evaluation.domains.get(name), evaluation.fitted.get(name)
        since = fitted.on if fitted is not None and fitted.labels is not None else None
        labels, auc = (domain.traces, domain.fair) if domain else (0, None)
        yield EvaluatedDomain(name, labels, since, auc)
