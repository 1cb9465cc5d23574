"""What the status page showed of a process that is gone, which the next one does not know."""

from __future__ import annotations

import json
from typing import Any

from knowledgepulse_worker.policy import ROUTES

_OF_TRACES = (
    *("unprofiled", "fleet", "latency"),
    *(route.participle for route in ROUTES.values()),
    "dead_letters",
)
"""The fields about finished records, besides the scores."""


class FormerStatus:
    """Keeps a child's last status, until the next child has finished a record.

    Statuses with trace content and those without it are kept apart.
    """

    def __init__(self) -> None:
        self._latest: dict[bool, bytes] = {}
        self._former: dict[bool, dict[str, Any]] = {}

    def keep(self, content: bool, answer: bytes) -> None:
        """Keep the child's latest status."""
        self._latest[content] = answer

    def child_ended(self) -> None:
        """Take the latest status for that of a former child."""
        for content, answer in self._latest.items():
            self._former[content] = self.completed(content, json.loads(answer))
        self._latest.clear()

    def of(self, content: bool) -> dict[str, Any]:
        """Return the former child's status; empty if there is none."""
        return self._former.get(content, {})

    def completed(self, content: bool, status: dict[str, Any]) -> dict[str, Any]:
        """Return the status of a child that has finished no record with the records of the former one.

        ``before_restart`` has the time of the former status. Rules and thresholds are those in force.
        """
        former = self._former.get(content)
        if former is None or status["outcomes"]["last_output"] is not None:
            return status
        domains = {
            name: domain | _decisions(former["scores"]["domains"].get(name))
            for name, domain in status["scores"]["domains"].items()
        }
        return (
            status
            | {name: former[name] for name in _OF_TRACES}
            | {"scores": status["scores"] | {"domains": domains}}
            | {"before_restart": former["before_restart"] or former["at"]}
        )


def _decisions(domain: dict[str, Any] | None) -> dict[str, Any]:
    return {} if domain is None else {name: domain[name] for name in ("values", "passes")}
