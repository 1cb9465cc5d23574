"""The search for the value that takes a worker longest, or most memory, to decode: hill climbing."""

from __future__ import annotations

import gc
import json
import random
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from chaos.results import Outcome
from worker.errors import RejectedRecord
from worker.records.decode import decode_inputs, decode_trace, with_quality_score
from worker.scoring import embedding_text

WEIGHT = "a search for values that are slow or large to decode"
ATTEMPTS, ATTEMPTS_SHORT = 600, 30
RESTART = 60
"""Attempts until the search starts from another place."""
SIZE = 1_048_576
TRACED_SIZE = SIZE // 8
"""Where memory is traced, which is slow."""
MOST_SECONDS = 0.25
MOST_TIMES = 20

_SCALARS = ("0", "1.5", "null", '""', '"a"', '"\\u0041"', '"\\ud800"', "1" * 400)
_STEP, _TOOL = '{"step_id":0,"type":"thought"}', '{"step_id":0,"type":"tool_call","tool":{"name":""}}'
_ITEMS = {
    "steps": (_STEP, _TOOL),
    "entities": ('{"name":"","type":""}',),
    "relationships": ('{"fact":"","valid_from":""}',),
    "validated_by": ('""', '"ab"'),
}
_PLACES = (*_ITEMS, "unknown", "metadata", "task", "input_schema", "step", "tool", "input", "outcome")


class Candidate(NamedTuple):
    """A text that is repeated at a place of a trace, as an array's items or as an object's members."""

    place: str
    unit: str
    is_object: bool

    def value(self, size: int) -> bytes:
        """Build the record's value, up to a size in bytes."""
        open_, close = "{}" if self.is_object else "[]"
        count = (size - 2_000) // (len(self.unit) + 8 if self.is_object else len(self.unit) + 1)
        units = (f'"{n:x}":{self.unit}' if self.is_object else self.unit for n in range(count))
        return json.dumps(self._trace()).replace('"@"', open_ + ",".join(units) + close).encode()

    def _trace(self) -> dict[str, Any]:
        step = {"step_id": 0, "type": "tool_call", "tool": {"name": "t"}, "input": {}}
        trace: dict[str, Any] = {
            "@context": "https://openknowledgepulse.org/schema/v1",
            "@type": "ReasoningTrace",
            "id": "kp:trace:weight",
            "metadata": {
                "created_at": "2026-01-01T00:00:00Z",
                "task_domain": "code",
                "success": True,
                "visibility": "private",
                "privacy_level": "private",
            },
            "task": {"objective": "o"},
            "steps": [step],
            "outcome": {"result_summary": "r", "confidence": 0.5},
            "knowledge_graph_delta": {},
        }
        parents = {"step": step, "tool": step["tool"], "unknown": trace, "input_schema": trace["task"]}
        parents |= {"steps": trace, "validated_by": trace["metadata"], "input": step}
        parents |= dict.fromkeys(("entities", "relationships"), trace["knowledge_graph_delta"])
        parents.get(self.place, trace.get(self.place))[
            self.place if self.place in (*_ITEMS, "input_schema", "input") else "x"
        ] = "@"
        return trace


class Weight(NamedTuple):
    """What a value takes: seconds of the processor, and its size's multiple in memory."""

    seconds: float
    times: float

    @property
    def share(self) -> float:
        """The larger share of the two limits."""
        return max(self.seconds / MOST_SECONDS, self.times / MOST_TIMES)


def search(attempts: int, say: Callable[[str], None]) -> Outcome:
    """Climb to the heaviest value within a number of attempts; a value beyond the limits is wrong."""
    started, rng = time.monotonic(), random.Random(1)
    gc.freeze()  # as a worker does
    best: dict[str, tuple[Weight, Candidate]] = {}
    here: tuple[Weight, Candidate] | None = None
    for attempt in range(attempts):
        if attempt % RESTART == 0:
            here = None
        candidate = _random(rng) if here is None else _mutated(here[1], rng)
        found = _weigh(candidate), candidate
        if here is None or found[0].share > here[0].share:
            here = found
        place = candidate.place
        if place not in best or found[0].share > best[place][0].share:
            best[place] = found
            say(f"{attempt}: {found[0].seconds:.3f} s, {found[0].times:.1f} times: {candidate}")
    ranked = sorted(best.values(), key=lambda one: one[0].share, reverse=True)
    return Outcome(
        rounds=1,
        records=attempts,
        outputs=attempts,
        repeats=0,
        missing=0,
        differing=0,
        audited=0,
        wrong=[f"{weight}: {one}" for weight, one in ranked if weight.share > 1][:5],
        notes={
            "longest": f"{max(weight.seconds for weight, _ in ranked):.2f} s",
            "largest by place": ", ".join(
                f"{one.place} {weight.times:.0f} times"
                for weight, one in sorted(ranked, key=lambda pair: -pair[0].times)
            ),
        },
        seconds=time.monotonic() - started,
    )


def _weigh(candidate: Candidate) -> Weight:
    value = candidate.value(SIZE)
    begin = time.process_time()
    _work(value)
    seconds = time.process_time() - begin
    value = candidate.value(TRACED_SIZE)
    tracemalloc.start()
    _work(value)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Weight(seconds, peak / len(value))


def _work(value: bytes) -> None:
    """Do what a lane does on the event loop."""
    with suppress(RejectedRecord):
        trace = decode_trace(value, 2 * SIZE)
        embedding_text(trace)
        embedding_text(trace, "agent", decode_inputs(value))
        with_quality_score(value, 0.5)


def _random(rng: random.Random) -> Candidate:
    place = rng.choice(_PLACES)
    return Candidate(place, rng.choice(_ITEMS.get(place, _SCALARS)), rng.random() < 0.3)


def _mutated(one: Candidate, rng: random.Random) -> Candidate:
    scalar = rng.choice(_SCALARS)
    changes = (
        lambda: one._replace(unit=f"[{one.unit}]"),
        lambda: one._replace(unit=f'{{"a":{one.unit}}}'),
        lambda: one._replace(unit=f"[{one.unit},{scalar}]"),
        lambda: one._replace(unit="[" * (n := rng.choice((10, 50, 150))) + "]" * n),
        lambda: one._replace(unit=one.unit.replace("}", f',"x":{scalar}}}', 1)),
        lambda: one._replace(unit=one.unit.replace('""', '"ab"', 1)),
        lambda: one._replace(is_object=not one.is_object),
        lambda: one._replace(unit=rng.choice(_ITEMS.get(one.place, _SCALARS))),
        lambda: one._replace(unit=scalar),
    )
    changed = rng.choice(changes)()
    return changed if len(changed.unit) < 2_000 else one
