"""What a command finds about its session with the brokers, by the same rules as a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from knowledgepulse_kafka.group_member import HEARTBEATS
from knowledgepulse_kafka.request_waits import MEMBERSHIP, READING, TRANSACTION
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.throttle import Throttles
from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.stream.diagnosis import Diagnosis, Observation
from knowledgepulse_worker.verdict import Verdict

OBSERVE_INTERVAL = 1.0
"""Seconds between two observations."""


@dataclass
class SessionDiagnosis:
    """Observes a session.

    A command that does not ask for records is not silent, as one that waits for its backend. So leaders and
    the transaction coordinator are silent for as long as the client waits for them.

    Args:
        session: the session.
        throttles: the times for which brokers throttle its clients.
        session_timeout: ``kafka.session_timeout``.
        clock: returns seconds (``time.monotonic``).
    """

    session: Session
    throttles: Throttles
    session_timeout: float
    clock: Callable[[], float] = time.monotonic
    _diagnosis: Diagnosis = field(init=False)
    _waiting_since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._diagnosis = Diagnosis(self.clock)

    @property
    def verdict(self) -> Verdict:
        """The latest verdict."""
        return self._diagnosis.verdict

    def waits(self) -> dict[Wait, float]:
        """Return what is waited for, with the seconds for which it has been."""
        return self._diagnosis.waits() | self.session.waits

    async def observe(self) -> None:
        """Observe the session now; this sends no requests."""
        member, publisher, throttles = self.session.member, self.session.publisher, self.throttles
        reading = tuple(member.waits.current(READING))
        publishing = tuple(publisher.waits.current(TRANSACTION))
        unanswered = self.clock() - member.answered_at - self.session_timeout / HEARTBEATS
        self._diagnosis.observe(
            Observation(
                pending=tuple(self.session.not_ready),
                publishing_throttled=throttles.producer.recent,
                reading_throttled=throttles.consumer.recent,
                requests_throttled=throttles.consumer.is_of_requests or throttles.producer.is_of_requests,
                coordinator_silence=max(0.0, unanswered) if member.is_member else 0.0,
                leader_silence=self._silence("reading", reading),
                transaction_age=self._silence("publishing", publishing),
                has_foreign_member=member.group.is_assigned_by_brokers,
                member_waits=tuple(member.waits.current(MEMBERSHIP)),
                reading_waits=reading,
                producer_waits=publishing,
            )
        )

    def _silence(self, what: str, waits: tuple[Wait, ...]) -> float:
        """Return the seconds for which there have been waits of a kind."""
        if not waits:
            self._waiting_since.pop(what, None)
            return 0.0
        now = self.clock()
        return now - self._waiting_since.setdefault(what, now)
