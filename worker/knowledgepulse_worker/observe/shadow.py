"""What the shadow policy would have decided."""

from __future__ import annotations

from collections import deque

from knowledgepulse_worker.observe.recent import LAST_RECORDS
from knowledgepulse_worker.policy import Policy, PolicyInForce
from knowledgepulse_worker.scoring import RescoreReport, Score, ScoredRecord


class ShadowComparison:
    """The shadow policy's effects since either policy last changed.

    Args:
        in_force: the policies.
    """

    def __init__(self, in_force: PolicyInForce) -> None:
        self.in_force = in_force
        self._policy: Policy | None = None
        self._report: RescoreReport | None = None

    @property
    def report(self) -> RescoreReport | None:
        """The effects; None without a shadow policy."""
        policy, shadow = self.in_force.policy, self.in_force.shadow
        if shadow is None:
            self._report = None
        elif self._report is None or self._report.policy is not shadow or self._policy is not policy:
            self._policy, self._report = policy, RescoreReport(shadow, flips=deque(maxlen=LAST_RECORDS))
        return self._report

    def add(self, record: ScoredRecord) -> Score | None:
        """Compare a published trace; return its score under the shadow policy, if there is one."""
        return None if (report := self.report) is None else report.add(record)
