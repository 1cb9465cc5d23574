"""What labels say of the policy: the file that a scheduled ``kp-worker policy evaluate --json`` writes.

Evaluating reads all labels and traces, and computes for minutes. A worker therefore only shows what another
process has found.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

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


def evaluation(path: Path) -> dict[str, Any]:
    """Return what a file of ``policy evaluate --json`` says, for the status JSON.

    Without such a file, the time and the policy are None, and there are no domains.
    """
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        about = path.stat()
        if about.st_size <= MAX_BYTES:
            evaluation = msgspec.json.decode(path.read_bytes(), type=_Evaluation)
            return {"at": about.st_mtime, "policy": evaluation.policy, "domains": _domains(evaluation)}
    return {"at": None, "policy": None, "domains": []}


def _domains(evaluation: _Evaluation) -> list[dict[str, Any]]:
    """Return the labels and the AUC of each domain.

    The date of the fit is None if the policy has no learned value there, or does not say to which labels it
    was fitted. Then all labels count, otherwise those since the fit.
    """
    told = []
    for name in evaluation.domains | evaluation.fitted:
        domain, fitted = evaluation.domains.get(name), evaluation.fitted.get(name)
        since = fitted.on if fitted is not None and fitted.labels is not None else None
        labels, auc = (domain.traces, domain.fair) if domain else (0, None)
        told.append({"name": name, "labels": labels, "since": since, "auc": auc})
    return told
