"""Drift: how far scores have moved from those that a policy was accepted on.

The reference is kept as rules that Prometheus evaluates to constants, so that the alert KpDrift and this
module compare the same figures: the distributions in the buckets of the workers' histograms, by the
Kolmogorov-Smirnov distance. A distance in buckets is at most the one between the values themselves.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from rich.table import Table

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.policy import DIMENSIONS, FORMER_DIGEST_LENGTH, Policy
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.scoring import ScoredRecord, decide, scores_under
from knowledgepulse_worker.tools.terminal.lines import file_errors
from knowledgepulse_worker.tools.terminal.reports import new_table

MIN_DISTANCE = 0.2
"""A smaller distance is no drift. For a normal distribution it is a shift by half a standard deviation, and a
population stability index of 0.25, which by convention is a major one."""

_CHANCE_FACTOR = 2.7
"""Times the root of 1/n + 1/m, which chance exceeds once in a million pairs of samples of n and m
traces."""

POLICY_DIMENSIONS = ("quality_score", "decision", "learned")
"""What also depends on the policy, and is compared only under the reference's."""

_TENTHS = tuple(step / 10 for step in range(1, 10))
_BOUNDS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(DIMENSIONS, _TENTHS),
    "quality_score": tuple(step / 20 for step in range(1, 20)),
    "decision": (0.0,),
    "learned": _TENTHS,
}
"""Upper bounds of the buckets, those of the workers' histograms; 1, which holds everything, is left out. A
decision is 1 for traces that are kept, and 0 for others."""

_CDF, _TRACES, _POLICY = "kp:reference:cdf", "kp:reference:traces", "kp:reference:policy_info"

DistributionKey = tuple[str, str]
"""Domain and dimension."""


class Distribution(NamedTuple):
    """The number of traces, and the share of their values up to each bound."""

    traces: int
    cdf: dict[float, float]


@dataclass(frozen=True)
class Distributions:
    """The distributions of scored traces, and the digest of the policy that gave scores and decisions."""

    policy: str
    of: dict[DistributionKey, Distribution]


@dataclass(frozen=True)
class Drift:
    """The drift of one dimension.

    Attributes:
        dimension: a dimension, `quality_score` or `decision`.
        traces: the number of traces.
        reference: the number of traces in the reference.
        distance: the Kolmogorov-Smirnov distance, 0 to 1; None without traces on either side.
        limit: the distance above which the drift is relevant, and larger than chance explains.
    """

    domain: str
    dimension: str
    traces: int
    reference: int
    distance: float | None
    limit: float
    drifted: bool


def distributions(records: Iterable[ScoredRecord], policy: Policy) -> Distributions:
    """Return the distributions of scored traces under a policy."""
    values: defaultdict[DistributionKey, list[float]] = defaultdict(list)
    for score in scores_under(list(records), policy):
        for name in (*DIMENSIONS, "quality_score"):
            values[score.domain, name].append(getattr(score, name))
        values[score.domain, "decision"].append(decide(score).kept)
        if score.learned is not None:
            values[score.domain, "learned"].append(score.learned)
    distributions = {}
    for key, column in values.items():
        cdf = {bound: float(np.mean(np.array(column) <= bound)) for bound in _BOUNDS[key[1]]}
        distributions[key] = Distribution(len(column), cdf)
    return Distributions(policy.digest, distributions)


def drifts(current: Distributions, reference: Distributions) -> Iterator[Drift]:
    """Yield the drift of each dimension, by domain; decisions only under the same policy."""
    domains = sorted({domain for domain, _ in (*current.of, *reference.of)})
    same = reference.policy in (current.policy, current.policy[:FORMER_DIGEST_LENGTH])
    for key in product(domains, (name for name in _BOUNDS if same or name not in POLICY_DIMENSIONS)):
        now, then = (distributions.of.get(key, Distribution(0, {})) for distributions in (current, reference))
        if key[1] == "learned" and not now.traces and not then.traces:
            continue
        distance, limit = None, MIN_DISTANCE
        if now.traces and then.traces:
            distance = max(abs(share - then.cdf[bound]) for bound, share in now.cdf.items())
            limit = max(MIN_DISTANCE, _CHANCE_FACTOR * math.sqrt(1 / now.traces + 1 / then.traces))
        yield Drift(*key, now.traces, then.traces, distance, limit, drifted=(distance or 0) > limit)


def drift_table(drifts: Iterable[Drift]) -> Table:
    """Return the report of drifts."""
    table = new_table("domain", "dimension", "traces", "reference", "distance", "drift above", "")
    for drift in drifts:
        figures = (drift.traces, drift.reference, "-" if drift.distance is None else f"{drift.distance:.2f}")
        words = printable(drift.domain), drift.dimension.replace("_", " "), *map(str, figures)
        table.add_row(*words, f"{drift.limit:.2f}", "drifted" if drift.drifted else "")
    return table


def reference_rules(accepted: Distributions) -> str:
    """Return the reference as a file of Prometheus rules, which is JSON and so YAML as well."""
    rules = [_rule(_POLICY, 1, policy=accepted.policy)]
    for (domain, dimension), distribution in sorted(accepted.of.items()):
        key = {"domain": domain, "dimension": dimension}
        rules.append(_rule(_TRACES, distribution.traces, **key))
        rules += (_rule(_CDF, share, **key, le=repr(at)) for at, share in distribution.cdf.items())
    # A constant is visible for five minutes, so each minute is often enough.
    groups = [{"name": "reference", "interval": "1m", "rules": rules}]
    return json.dumps({"groups": groups}, indent=1) + "\n"


def _rule(record: str, value: float, **labels: str) -> dict[str, Any]:
    return {"record": record, "labels": labels, "expr": f"vector({value!r})"}


class _Rule(msgspec.Struct):
    record: str
    labels: dict[str, str]
    expr: str

    @property
    def key(self) -> DistributionKey:
        return self.labels["domain"], self.labels["dimension"]

    def value(self, lowest: float, highest: float) -> float:
        """Return the constant; raise a ValueError if it is none between two bounds."""
        value = float(self.expr.removeprefix("vector(").removesuffix(")"))
        if not lowest <= value <= highest:
            raise ValueError("out of range")
        return value


class _Group(msgspec.Struct):
    rules: list[_Rule]


class _File(msgspec.Struct):
    groups: list[_Group]


def read_reference(path: Path) -> Distributions:
    """Read a reference; raise an InputError if the file is none."""
    with file_errors(path, "read"):
        content = path.read_bytes()
    try:
        rules = [rule for group in msgspec.json.decode(content, type=_File).groups for rule in group.rules]
        by_record = {
            record: [rule for rule in rules if rule.record == record] for record in (_POLICY, _TRACES, _CDF)
        }
        read = {rule.key: Distribution(int(rule.value(1, 2**53)), {}) for rule in by_record[_TRACES]}
        for rule in by_record[_CDF]:
            read[rule.key].cdf[float(rule.labels["le"])] = rule.value(0, 1)
        policy = by_record[_POLICY][0].labels["policy"]
    except (*DECODE_ERRORS, ValueError, LookupError):
        raise InputError(f"{path}: not a reference of `kp-worker policy drift --accept`") from None
    for (_, dimension), distribution in read.items():
        if tuple(sorted(distribution.cdf)) != _BOUNDS.get(dimension):
            raise InputError(f"{path}: other buckets of {printable(dimension)} than those of this release")
    return Distributions(policy, read)
