"""Find outcomes in texts that predict the label, such as `"reward": 1.0` in an observation."""

from __future__ import annotations

import re

import numpy as np

from knowledgepulse_worker.tools.policies.estimates import auc
from knowledgepulse_worker.tools.policies.labelled_traces import LEAK_AUC, SUPPORT, Labelled, LabelledTrace

_OUTCOME = re.compile(
    r"\b(reward|score|grade|resolved|passed|solved|success|correct|is_correct)\b"
    r"[\"']?\s*[:=]\s*[\"']?(true|false|\d{1,6}(?:\.\d{1,6})?)\b",
    re.IGNORECASE,
)


def outcomes_in_text(labelled: Labelled) -> dict[str, int]:
    """Return the outcomes in the texts that predict the label, with the number of traces that state them.

    Only the shortened texts are searched, which include the ends of a trace. An outcome counts if enough
    traces of both kinds state it.
    """
    stated: dict[str, dict[int, float]] = {}
    for number, one in enumerate(labelled.traces):
        for name, value in _outcomes(one):
            stated.setdefault(name, {})[number] = value
    found = {}
    for name, values in stated.items():
        kept = labelled.kept[[*values]]
        if min(kept.sum(), (~kept).sum()) < SUPPORT:
            continue
        area = float(auc(kept, np.array([*values.values()]))[0])
        if not 1 - LEAK_AUC < area < LEAK_AUC:
            found[name] = len(values)
    return found


def _outcomes(one: LabelledTrace) -> list[tuple[str, float]]:
    content = one.record.content
    if content is None:
        return []
    text = "\n".join((content.objective, *content.steps, content.result))
    return [(name.lower(), _number(value.lower())) for name, value in _OUTCOME.findall(text)]


def _number(value: str) -> float:
    return float(value == "true") if value in {"true", "false"} else float(value)
