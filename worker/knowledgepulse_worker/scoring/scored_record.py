"""A scored trace with the members that rescoring, tuning and evaluation need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.trace import Ending, PrivacyLevel, Visibility, ending_of
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring.content import UNGRADED, Content, Graded
from knowledgepulse_worker.scoring.counts import Counts
from knowledgepulse_worker.scoring.score import Score, rescore


@dataclass(frozen=True, slots=True)
class ScoredRecord:
    """A scored trace.

    Attributes:
        source: ``topic/partition/offset`` of the raw record, or ``file:line``.
        id: the trace's id.
        task_domain: the trace's domain, which selects the profile of a policy.
        visibility, privacy_level: the members of the trace's metadata that the guards check.
        success: whether the agent reports success.
        confidence: the agent's confidence, before the reduction for a failure.
        score: the recorded score.
        policy: the digest of the policy that gave the score; None if it was not recorded.
        timestamp_ms: the record's timestamp; None for a line of a file.
        embedder: the embedder with which novelty was computed; None if it was not recorded.
        content: the texts for judging the trace; None if they were not read.
        counts: the counts of the trace, which policies with learned values need; None if unknown.
        agent_id: the agent's id; None if the trace names none or it was not recorded.
        partition: the number of the partition that a line of a file was scored in.
        ending: how the run ended; None if the trace does not tell it.
        judged: whether somebody judged the run; None if the trace does not tell it.
        assumed_confidence: whether the confidence is the converter's default, since the run told none.
    """

    source: str
    id: str
    task_domain: str
    visibility: Visibility
    privacy_level: PrivacyLevel
    success: bool
    confidence: float
    score: Score
    policy: str | None = None
    timestamp_ms: int | None = None
    embedder: str | None = None
    content: Content | None = None
    counts: Counts | None = None
    agent_id: str | None = None
    partition: int = 0
    ending: Ending | None = None
    judged: bool | None = None
    assumed_confidence: bool = False

    @classmethod
    def of(
        cls,
        source: str,
        trace: ReasoningTrace,
        score: Score,
        embedder: str | None = None,
        content: Content | None = None,
        counts: Counts | None = None,
        *,
        judged: bool | None = None,
        assumed_confidence: bool = False,
    ) -> Self:
        """Create the record of a trace and its score."""
        metadata = trace.metadata
        return cls(
            source=source,
            id=trace.id,
            task_domain=metadata.task_domain,
            visibility=metadata.visibility,
            privacy_level=metadata.privacy_level,
            success=metadata.success,
            confidence=trace.outcome.confidence,
            score=score,
            embedder=embedder,
            content=content,
            counts=counts,
            agent_id=metadata.agent_id,
            ending=ending_of(metadata.ending),
            judged=judged,
            assumed_confidence=assumed_confidence,
        )

    @property
    def native_id(self) -> str | None:
        """The id of the trace's run in the system it comes from; None if it is unknown."""
        return self.content.native_id if self.content else None

    @property
    def task(self) -> str | None:
        """The digest of the trace's objective; None if it is unknown."""
        return self.content.task if self.content else None

    @property
    def graded(self) -> Graded:
        """What graders said of the trace's run, as far as it is known."""
        return self.content.graded if self.content else UNGRADED

    def under(self, policy: Policy) -> Score:
        """Return the trace's score under a policy, before a share decides; see :class:`Rescorer`.

        Raises:
            NoFactsError: the policy has a learned value for the trace, whose counts are unknown.
        """
        return rescore(self.score, self, policy, self.counts)

    @property
    def log(self) -> tuple[str, int]:
        """The topic, empty for a line of a file, and the number of the partition."""
        return ("", self.partition) if self._position is None else self._position[:2]

    @property
    def offset(self) -> int:
        """The offset of the raw record; 0 for a line, since lines are in order."""
        return 0 if self._position is None else self._position[2]

    @property
    def _position(self) -> tuple[str, int, int] | None:
        topic, *numbers = self.source.rsplit("/", 2)
        if ":" in topic or len(numbers) < 2 or not all(map(str.isdecimal, numbers)):
            return None
        return topic, int(numbers[0]), int(numbers[1])
