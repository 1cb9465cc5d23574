"""The page of scores: one file with all that it shows, which asks for nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from knowledgepulse_worker.http.parts import hashes_of, page_of
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.scoring.overrides import EFFECTS
from knowledgepulse_worker.tools.score.score_report import FIFTH
from knowledgepulse_worker.tools.score.scores import Scores
from knowledgepulse_worker.tools.terminal.fitted import common_folder

BEST = 300
"""The best traces, whose steps the page has, with the steps of the nearest of each."""
SAMPLE = 100
"""Further traces whose steps it has: evenly from the first to the last."""
MAX_STEPS = 16 * 2**20
"""Bytes of steps on a page; those of the best come first."""
MAX_TEXT = 4000
"""Characters of a text of a step."""
MAX_RUN = 48 * 2**10
"""Bytes of a trace's steps; of a longer one, its first and last steps are shown."""
_ENDS = 12
"""Steps at each end of a trace that is too long."""
_EXCERPT = 160
"""Characters of an objective and of a result in the table."""

_PAGE = page_of(__package__, "scores.html")


def page_of_scores(scores: Scores, *, content: bool) -> str:
    """Return the page; see :meth:`Scores.html`."""
    own = hashes_of(_PAGE)
    security = (
        f"default-src 'none'; script-src '{own['script']}'; style-src '{own['style']}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    order = scores.order()
    steps = "".join(
        f'<script type="application/json" id="run-{at}">{_json(told)}</script>\n'
        for at, told in _with_steps(scores, order, content=content)
    )
    return (
        _PAGE.decode()
        .replace("<!-- security -->", f'<meta http-equiv="Content-Security-Policy" content="{security}">')
        .replace("<!-- data -->", _data(scores, order, content=content))
        .replace("<!-- runs -->", steps)
    )


def _json(value: Any) -> str:
    """Return JSON that cannot end a script's element, nor hold half of a character."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode().replace("<", "\\u003c")


def _data(scores: Scores, order: Sequence[int], *, content: bool) -> str:
    records, policy = scores.records, scores.settings.policy
    folder = common_folder({record.source for record in records}) if content else ""
    data = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": version("knowledgepulse-worker"),
        "embedder": records[0].embedder if records else None,
        "policy": policy.digest,
        "chosen": policy.has_own_rule,
        "share": FIFTH,
        "content": content,
        "folder": folder,
        "domains": {name: _rule(policy, name) for name in sorted({each.score.domain for each in records})},
        "effects": EFFECTS,
        "order": order,
        "passing": scores.passing(list(order)),
        "rows": list(_rows(records, len(folder), content=content)),
    }
    return f'<script type="application/json" id="data">{_json(data)}</script>'


def _rule(policy: Policy, domain: str) -> dict[str, Any]:
    profile = policy.profile(domain)
    learned = profile.learned.share if profile.learned else 0.0
    return {
        "threshold": profile.threshold,
        "share": profile.share,
        "weights": {name: (1 - learned) * weight for name, weight in profile.weights} | {"learned": learned},
    }


def _rows(records: Sequence[ScoredRecord], folder: int, *, content: bool) -> Iterator[list[Any]]:
    """Yield the rows of the table; the script of the page names their columns."""
    for at, (record, nearest) in enumerate(zip(records, _nearest(records), strict=True)):
        score, told = record.score, record.content if content else None
        yield [
            record.source[folder:] if content else str(at + 1),
            score.quality_score,
            score.domain,
            record.ending,
            record.judged,
            record.counts.steps if record.counts else None,
            [round(value, 4) for value in (*asdict(score.dimensions).values(), score.learned or 0.0)],
            score.overrides,
            nearest,
            score.withheld,
            told.objective[:_EXCERPT] if told else "",
            told.result[:_EXCERPT] if told else "",
        ]


def _nearest(records: Sequence[ScoredRecord]) -> list[int | None]:
    """Return the number of the earlier trace that is nearest to each; None if it is not on the page."""
    earlier: dict[str, int] = {}
    nearest = []
    for at, record in enumerate(records):
        nearest.append(earlier.get(record.score.nearest or ""))
        earlier[record.id] = at
    return nearest


def _with_steps(scores: Scores, order: Sequence[int], *, content: bool) -> Iterator[tuple[int, Any]]:
    """Yield the traces whose steps the page has, as far as they fit: the best, their nearest, a sample."""
    nearest = _nearest(scores.records)
    best = order[:BEST]
    rest = order[BEST :: max(1, (len(order) - BEST) // SAMPLE)]
    chosen = dict.fromkeys([*best, *(near for at in best if (near := nearest[at]) is not None), *rest])
    left = MAX_STEPS
    for at in chosen:
        told = _told(json.loads(scores.value(at)), content=content)
        left -= len(_json(told).encode())
        if left < 0:
            return
        yield at, told


def _told(trace: Mapping[str, Any], *, content: bool) -> dict[str, Any]:
    """Return what the page shows of a trace: its texts, or only the types of its steps."""
    steps = trace["steps"]
    if not content:
        return {"steps": [{"type": step["type"]} for step in steps]}
    shown = [_step(step) for step in steps]
    if len(shown) > 2 * _ENDS and len(_json(shown)) > MAX_RUN:
        left_out = {"left_out": len(shown) - 2 * _ENDS}
        shown = [*shown[:_ENDS], left_out, *shown[-_ENDS:]]
    return {
        "id": trace["id"],
        "agent": trace["metadata"].get("agent_id") or trace["metadata"].get("framework"),
        "objective": _cut(trace["task"]["objective"]),
        "steps": shown,
        "result": _cut(trace["outcome"]["result_summary"]),
    }


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    texts = {"content": step.get("content"), "output": step.get("output_summary")}
    tool = step.get("tool")
    return {
        "type": step["type"],
        **({"tool": tool["name"]} if tool else {}),
        **(
            {"input": _cut(json.dumps(step["input"], ensure_ascii=False, indent=1))}
            if step.get("input")
            else {}
        ),
        **{name: _cut(text) for name, text in texts.items() if text},
        **({"ms": step["latency_ms"]} if step.get("latency_ms") else {}),
    }


def _cut(text: str) -> str:
    left = len(text) - MAX_TEXT
    return text if left <= 0 else f"{text[:MAX_TEXT]}… {left:,} more characters"
