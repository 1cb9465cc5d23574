"""What is counted of the policies: which are in force, and how they decide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, product
from statistics import median

from knowledgepulse_worker.observe.metric_registry import Makers, start_at_zero
from knowledgepulse_worker.observe.recent import PublishedTrace
from knowledgepulse_worker.policy import ROUTES, Decision, Policy

RELOAD_RESULTS = ("ok", "failed")


class PolicyMetrics:
    """The metrics of the policies.

    Args:
        make: makes the metrics.
    """

    def __init__(self, make: Makers) -> None:
        self._threshold = make.gauge(
            "kp_threshold",
            "Lowest score with which a trace is contributed; with a share, at the latest trace",
            ["domain"],
        )
        self._domains: Collection[str] = ()
        self._cuts: dict[str, float] = {}  # set in the gauge at each scrape, which is far cheaper
        self._share = make.gauge("kp_share", "Share of the traces that is contributed", ["domain"])
        self._share_threshold = make.gauge(
            "kp_share_threshold",
            "Lowest score that passes by a domain's share: the least, the median and the greatest of the "
            "worker's partitions",
            ["domain", "quantile"],
        )
        self._promise = make.gauge(
            "kp_promise",
            "Whether what labels promised of the contributed traces still holds (1), or is withdrawn (0)",
            ["domain"],
        )
        self._policy = make.gauge("kp_policy_info", "Digest of the current policy", ["policy"])
        self._shadow_policy = make.gauge(
            "kp_shadow_policy_info", "Digest of the current shadow policy", ["policy"]
        )
        self._shadow_decisions = make.counter(
            "kp_shadow_decisions",
            "Published traces by their decision and the shadow policy's",
            ["active", "shadow"],
        )
        for decisions in product(ROUTES, ROUTES):
            self._shadow_decisions.labels(*decisions)
        self._reloads = make.counter("kp_policy_reloads", "Reloads of a changed policy file", ["result"])
        start_at_zero(self._reloads, RELOAD_RESULTS)

    def set(self, policy: Policy) -> None:
        """Set the current policy."""
        self._policy.clear()
        self._policy.labels(policy.digest).set(1)
        self._domains = policy.profiles.keys()
        self._threshold.clear()
        self._cuts.clear()
        self._share.clear()
        for domain, profile in policy.profiles.items():
            self._threshold.labels(domain).set(profile.threshold)
            if profile.share is not None:
                self._share.labels(domain).set(profile.share)

    def promised(self, holds: Mapping[str, bool]) -> None:
        """Set whether the promises of the current policy hold, by domain."""
        self._promise.clear()
        for domain in holds.keys() & set(self._domains):
            self._promise.labels(domain).set(holds[domain])

    def set_shadow(self, policy: Policy | None) -> None:
        """Set the current shadow policy; None if there is none."""
        self._shadow_policy.clear()
        if policy is not None:
            self._shadow_policy.labels(policy.digest).set(1)

    def reloaded(self, result: str) -> None:
        """Count a reload of a changed policy file."""
        self._reloads.labels(result).inc()

    def decided(self, traces: Iterable[PublishedTrace]) -> None:
        """Note the lowest scores that passed by a share, at the latest of these traces."""
        for trace in traces:
            if trace.score.rank is not None:
                self._cuts[trace.score.domain] = trace.score.threshold

    def compared(self, decision: Decision, shadow: Decision) -> None:
        """Count a published trace by its decision and the shadow policy's."""
        self._shadow_decisions.labels(decision, shadow).inc()

    def share_thresholds(self, cuts: Iterable[Mapping[str, float]]) -> None:
        """Set the lowest scores that pass by a share, given those of each partition by domain."""
        by_domain: defaultdict[str, list[float]] = defaultdict(list)
        for domain, cut in chain.from_iterable(of_partition.items() for of_partition in cuts):
            by_domain[domain].append(cut)
        self._share_threshold.clear()
        for domain, values in by_domain.items():
            for quantile, value in (("0", min(values)), ("0.5", median(values)), ("1", max(values))):
                self._share_threshold.labels(domain, quantile).set(value)

    def refresh(self) -> None:
        """Refresh the gauges before a scrape."""
        for domain in self._cuts.keys() & set(self._domains):
            self._threshold.labels(domain).set(self._cuts[domain])
