"""The digest that identifies a policy: a hash of everything that can change a score or a route."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from knowledgepulse_worker.policy.guards import MINIMUMS, PRIVACY_LEVELS, VISIBILITIES, Guard
from knowledgepulse_worker.policy.profile import Profile

DIGEST_LENGTH = 32
"""The number of hexadecimal digits of a policy's digest."""

FORMER_DIGEST_LENGTH = 12
"""The number of digits up to release 0.3.0, with which a digest begins."""

_Guards = Mapping[Guard, tuple[str, ...]]


def digest_of(profiles: Mapping[str, Profile], guards: _Guards, endings: Sequence[str] = ()) -> str:
    """Return a digest of 32 hexadecimal digits.

    It begins with the digest that releases up to 0.3.0 gave the policy, which their outputs carry. The rest
    is a hash of canonical JSON, in which no two different policies are alike.

    Args:
        profiles: the profiles by domain.
        guards: the values that may be contributed, by guard.
        endings: the endings that are withheld.
    """
    effective = {
        "domains": {name: _effective(profile) for name, profile in profiles.items()},
        "guards": _restricting(guards),
        **({"endings": endings} if endings else {}),
    }
    canonical = json.dumps(effective, sort_keys=True, allow_nan=False).encode()
    former = _former_digest(profiles, guards, endings)
    return former + hashlib.sha256(canonical).hexdigest()[: DIGEST_LENGTH - len(former)]


def _effective(profile: Profile) -> dict[str, Any]:
    """Return what decides in a domain.

    Nothing is added for what has no effect, so that later releases keep the digests.
    """
    learned = profile.learned and [profile.learned.share, profile.learned.intercept, sorted(profile.terms)]
    effective: dict[str, Any] = {
        "threshold": profile.threshold,
        "weights": profile.weights.model_dump(),
        "learned": learned,
    }
    if profile.words is not None:
        effective["words"] = [*profile.words[:2], profile.words[2].hex()]
    if profile.ranking:
        effective["share"] = profile.ranking
    return effective | {minimum: value for minimum in MINIMUMS if (value := getattr(profile, minimum))}


def _restricting(guards: _Guards) -> _Guards:
    """Return the guards that do not accept everything."""
    return {guard: listed for guard, listed in guards.items() if listed not in (VISIBILITIES, PRIVACY_LEVELS)}


def _former_digest(profiles: Mapping[str, Profile], guards: _Guards, endings: Sequence[str]) -> str:
    """Return the digest up to release 0.3.0, in which a domain's name could look like another domain.

    Policies that only later releases know differ from those that these had.
    """
    by_name = sorted(profiles.items())
    lines = [f"{name} {p.threshold!r} {sorted(p.weights.model_dump().items())!r}" for name, p in by_name]
    lines += [
        f"learned {name} {learned.share!r} {learned.intercept!r} {sorted(p.terms)!r}"
        for name, p in by_name
        if (learned := p.learned)
    ]
    lines += [f"words {name} {words!r}" for name, p in by_name if (words := p.words)]
    lines += [" ".join(["share", name, *map(repr, p.ranking)]) for name, p in by_name if p.ranking]
    lines += [
        f"{minimum} {name} {value!r}"
        for minimum in MINIMUMS
        for name, p in by_name
        if (value := getattr(p, minimum))
    ]
    lines += [f"contribute_{guard} {listed!r}" for guard, listed in _restricting(guards).items()]
    lines += [f"withhold_endings {endings!r}"] if endings else []
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:FORMER_DIGEST_LENGTH]


def are_of_one_policy(first: str, second: str) -> bool:
    """Return whether two digests may be of one policy; either may be of a release up to 0.3.0."""
    if len(first) == len(second):
        return first == second
    return bool(first and second) and first[:FORMER_DIGEST_LENGTH] == second[:FORMER_DIGEST_LENGTH]
