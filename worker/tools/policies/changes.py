"""Differences between policies, in words."""

from __future__ import annotations

import difflib

from knowledgepulse_worker.policy import DEFAULT_DOMAIN, REFERENCE_WEIGHTS, Policy, Profile


def changes(old: Policy, new: Policy) -> list[str]:
    """Describe the effective changes of a new policy, one per line; empty if there are none.

    A domain that only one policy names is compared with the other policy's ``default``.
    """
    names = [*dict.fromkeys([*old.profiles, *new.profiles])]
    lines = {name: _profile_changes(old.profile(name), new.profile(name)) for name in names}
    if len({*lines.values()}) == 1:
        lines = {"every domain": lines[DEFAULT_DOMAIN]}
    for guard, listed in old.guards.items():
        if new.guards[guard] != listed:
            lines[f"contribute_{guard}"] = f"{', '.join(listed)} → {', '.join(new.guards[guard])}"
    return [f"{name}: {line}" for name, line in lines.items() if line]


def suspicions(policy: Policy) -> list[str]:
    """Warn of domains that look like a misspelt reference domain, one line each."""
    lines = []
    for name in policy.domains:
        close = difflib.get_close_matches(name.lower(), REFERENCE_WEIGHTS, n=1, cutoff=0.8)
        if close and name not in REFERENCE_WEIGHTS:
            lines.append(
                f"{name} is not a reference domain; did you mean {close[0]}? Domains are matched exactly"
            )
    return lines


def _profile_changes(old: Profile, new: Profile) -> str:
    before, after = old.weights.model_dump(), new.weights.model_dump()
    parts = [f"threshold {old.threshold!r} → {new.threshold!r}"] if old.threshold != new.threshold else []
    for name, weight in after.items():
        if before[name] != weight:
            parts.append(f"weight of {name} {before[name]!r} → {weight!r}")
    return ", ".join(parts)
