"""A policy to review: changes of one in force, written as TOML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tomli_w

from knowledgepulse_worker.policy import DomainPolicy, Policy

_FIELDS = ("threshold", "weights")

Changes = Mapping[str, Mapping[str, Any]]
"""By domain, its new ``threshold`` or ``weights``, or both."""


def with_changes(policy: Policy, changes: Changes) -> Policy:
    """Return a policy with changes of some domains and none of all others.

    A domain inherits from ``default`` what it omits; it gets that as its own if ``default``'s changes.
    """
    changed = _with(policy, changes)
    kept = {
        name: {
            field: getattr(profile, field)
            for field in _FIELDS
            if field not in changes.get(name, {})
            and getattr(changed.profile(name), field) != getattr(profile, field)
        }
        for name, profile in policy.profiles.items()
    }
    return _with(changed, {name: fields for name, fields in kept.items() if fields})


def policy_toml(policy: Policy, comments: Iterable[str]) -> str:
    """Return a ``[policy]`` as TOML below comments."""
    lines = "".join(f"# {line}\n" for line in comments)
    return lines + tomli_w.dumps({"policy": policy.model_dump(exclude_none=True)})


def _with(policy: Policy, changes: Changes) -> Policy:
    domains = dict(policy.domains)
    for name, fields in changes.items():
        domains[name] = domains.get(name, DomainPolicy()).model_copy(update=dict(fields))
    return Policy(**policy.model_dump(exclude={"domains"}), domains=domains)
