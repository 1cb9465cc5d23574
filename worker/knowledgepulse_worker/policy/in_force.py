"""The policies in force, which can change while the worker runs."""

from __future__ import annotations

import time
from collections import deque

from knowledgepulse_worker.policy.learned import Reading
from knowledgepulse_worker.policy.model import Policy, is_digest_of

LAST_POLICIES = 10
"""Number of policies that are kept to explain scores, since traces in flight outlast a change of policy."""


class PolicyInForce:
    """The current policies, which scoring reads for each trace.

    Attributes:
        shadow: the policy whose decisions are only compared; None without one.
        refused: why the latest edit of the policy is not in force, and which is; empty without one.
        since: when the policy came into force, in seconds since the epoch.
    """

    def __init__(self, policy: Policy, shadow: Policy | None = None) -> None:
        self._latest: deque[Policy] = deque(maxlen=LAST_POLICIES)
        self.policy = policy
        self.shadow = shadow
        self.refused = ""

    @property
    def policy(self) -> Policy:
        """The policy, which can be replaced at any time; earlier decisions stand."""
        return self._latest[-1]

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._latest.append(policy)
        self.since = time.time()

    def known(self, digest: str) -> Policy | None:
        """Return the policy with a digest, if it is among the latest :data:`LAST_POLICIES`."""
        return next((policy for policy in self._latest if is_digest_of(policy, digest)), None)

    @property
    def reading(self) -> Reading:
        """What the learned values of both policies read of a trace."""
        reading = self.policy.reading
        return reading if self.shadow is None else max(reading, self.shadow.reading)


def begun_anew(old: Policy, new: Policy) -> list[str]:
    """Return the domains whose last scores begin anew under a new policy, since theirs are not comparable."""
    return [
        name
        for name, profile in new.profiles.items()
        if None not in (profile.share, old.profile(name).share) and profile.scale != old.profile(name).scale
    ]
