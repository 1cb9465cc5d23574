"""Drift: how far scores have moved from those that a policy was accepted on.

The reference is kept as rules that Prometheus evaluates to constants, so that the alert KpDrift and this
module compare the same figures: the distributions in the buckets of the workers' histograms, by the
Kolmogorov-Smirnov distance. A distance in buckets is at most the one between the values themselves.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy, Weights
from knowledgepulse_worker.scoring import ScoredRecord

RELEVANT = 0.2
"""A smaller distance is no drift. For a normal distribution it is a shift by half a standard deviation, and a
population stability index of 0.25, which by convention is a major one."""

_SIGNIFICANT = 2.7
"""Times the root of 1/n + 1/m, which chance exceeds once in a million pairs of windows of n and m
traces."""

OF_POLICY = ("quality_score", "decision")
"""What also depends on the weights and thresholds, and is compared only under the reference's policy."""

_DIMENSIONS = tuple(Weights.model_fields)
_TENTHS = tuple(step / 10 for step in range(1, 10))
_BOUNDS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(_DIMENSIONS, _TENTHS),
    "quality_score": tuple(step / 20 for step in range(1, 20)),
    "decision": (0.0,),
}
"""Upper bounds of the buckets, those of the workers' histograms; 1, which holds everything, is left out. A
decision is 0 for rejected and 1 for contributed."""

_CDF, _TRACES, _POLICY = "kp:reference:cdf", "kp:reference:traces", "kp:reference:policy_info"
_VECTOR = re.compile(r"vector\((\d[\d.e-]*)\)")

Key = tuple[str, str]
"""Domain and dimension."""


class _Rule(msgspec.Struct):
    record: str
    expr: str
    labels: dict[str, str]


class _Group(msgspec.Struct):
    name: str
    interval: str
    rules: list[_Rule]


class _Groups(msgspec.Struct):
    groups: list[_Group]


@dataclass(frozen=True)
class Distribution:
    """A dimension's values in a window.

    Attributes:
        traces: number of values.
        cdf: shares of the values up to each bound, by bound.
    """

    traces: int
    cdf: dict[float, float]


@dataclass(frozen=True)
class Distributions:
    """All dimensions of a window.

    Attributes:
        policy: digest of the policy that the scores and decisions are computed with.
        values: by domain and dimension.
    """

    policy: str
    values: dict[Key, Distribution]


@dataclass(frozen=True)
class Drift:
    """How far a dimension has moved.

    Attributes:
        domain: the profile's name.
        dimension: a dimension, ``quality_score`` or ``decision``.
        traces: number of traces in the current window.
        reference: number of traces in the reference.
        distance: the Kolmogorov-Smirnov distance, 0 to 1; None if a window has no traces.
        limit: the distance above which it is drift.
    """

    domain: str
    dimension: str
    traces: int
    reference: int
    distance: float | None
    limit: float

    @property
    def drifted(self) -> bool:
        """Whether the distance is relevant and more than chance explains."""
        return self.distance is not None and self.distance > self.limit

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON."""
        return {**asdict(self), "drifted": self.drifted}


def distributions(records: Iterable[ScoredRecord], policy: Policy) -> Distributions:
    """Return the distributions of scored traces under a policy."""
    values: defaultdict[Key, list[float]] = defaultdict(list)
    for record in records:
        score = record.under(policy)
        for name in (*_DIMENSIONS, "quality_score"):
            values[score.domain, name].append(getattr(score, name))
        values[score.domain, "decision"].append(score.decision == "contribute")
    return Distributions(
        policy.digest,
        {key: _distribution(np.array(found, float), _BOUNDS[key[1]]) for key, found in values.items()},
    )


def _distribution(values: NDArray[np.float64], bounds: tuple[float, ...]) -> Distribution:
    return Distribution(len(values), {bound: float(np.mean(values <= bound)) for bound in bounds})


def drifts(current: Distributions, reference: Distributions) -> Iterator[Drift]:
    """Yield the drift of each dimension of both windows, by domain; decisions only under the same policy."""
    nothing = Distribution(0, {})
    for key in sorted(
        {*current.values, *reference.values}, key=lambda key: (key[0], [*_BOUNDS].index(key[1]))
    ):
        if key[1] in OF_POLICY and current.policy != reference.policy:
            continue
        now, then = current.values.get(key, nothing), reference.values.get(key, nothing)
        distance, limit = None, RELEVANT
        if now.traces and then.traces:
            distance = max(abs(share - then.cdf[bound]) for bound, share in now.cdf.items())
            limit = max(RELEVANT, _SIGNIFICANT * math.sqrt(1 / now.traces + 1 / then.traces))
        yield Drift(*key, now.traces, then.traces, distance, limit)


def reference_rules(accepted: Distributions) -> str:
    """Return the reference as a file of Prometheus rules, which is JSON and so YAML as well."""
    rules = [_Rule(_POLICY, _vector(1), {"policy": accepted.policy})]
    for (domain, dimension), one in sorted(accepted.values.items()):
        labels = {"domain": domain, "dimension": dimension}
        rules.append(_Rule(_TRACES, _vector(one.traces), labels))
        rules += (_Rule(_CDF, _vector(share), {**labels, "le": repr(at)}) for at, share in one.cdf.items())
    # A constant is visible for five minutes, so each minute is often enough for any scrape interval.
    groups = _Groups([_Group("reference", "1m", rules)])
    return json.dumps(msgspec.to_builtins(groups), indent=1) + "\n"


def _vector(value: float) -> str:
    return f"vector({value!r})"


def read_reference(path: Path) -> Distributions:
    """Read a reference.

    Raises:
        InputError: the file is none.
    """
    try:
        groups = msgspec.json.decode(path.read_bytes(), type=_Groups).groups
        return _reference([rule for group in groups for rule in group.rules])
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise InputError(f"{path}: not a reference of `kp-worker policy drift --accept`: {error}") from None


def _reference(rules: Iterable[_Rule]) -> Distributions:
    policy, traces = "", {}
    shares: defaultdict[Key, dict[float, float]] = defaultdict(dict)
    for rule in rules:
        value = _VECTOR.fullmatch(rule.expr)
        if value is None:
            raise ValueError(f"{rule.expr} instead of vector(NUMBER)")
        if rule.record == _POLICY:
            policy = rule.labels["policy"]
            continue
        key = rule.labels["domain"], rule.labels["dimension"]
        if rule.record == _TRACES:
            traces[key] = int(value[1])
        else:
            shares[key][float(rule.labels["le"])] = float(value[1])
    if not traces:
        raise ValueError("it has no traces")
    for key, found in shares.items():
        if tuple(sorted(found)) != _BOUNDS[key[1]]:
            raise ValueError(f"other buckets of {key[1]} than those of this release")
    return Distributions(policy, {key: Distribution(count, shares[key]) for key, count in traces.items()})
