"""Decide again on scored traces under another policy, in the order of their partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from knowledgepulse_worker.policy import Policy, is_digest_of
from knowledgepulse_worker.scoring.score import Score
from knowledgepulse_worker.scoring.scored_record import ScoredRecord
from knowledgepulse_worker.scoring.shares import RecentScores


class Rescorer:
    """The scores of traces under a policy.

    Shares begin with the first trace that is given: until there are enough, the threshold decides. Where the
    policy has decided already, its decision stands.

    Attributes:
        policy: the policy.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._recent: defaultdict[tuple[str, int], RecentScores] = defaultdict(RecentScores)

    def score(self, record: ScoredRecord) -> Score:
        """Return the score of the next trace of its partition.

        Raises:
            NoFactsError: the policy has a learned value for the trace, whose counts are unknown.
        """
        policy, profile = self.policy, self.policy.profile(record.task_domain)
        score = record.under(policy)
        if profile.share is None:
            return score
        decided = self._recent[record.log].decide(score, profile, record.agent_id)
        is_decided = record.policy is not None and is_digest_of(policy, record.policy)
        return record.score if is_decided else decided


def scores_under(records: Sequence[ScoredRecord], policy: Policy) -> list[Score]:
    """Return the scores of traces under a policy, in the order in which they are given.

    The decisions are made in the order of the offsets of their partitions.

    Raises:
        NoFactsError: the policy has a learned value for a trace, whose counts are unknown.
    """
    rescorer, order = Rescorer(policy), sorted(range(len(records)), key=lambda at: records[at].offset)
    scores = {at: rescorer.score(records[at]) for at in order}
    return [scores[at] for at in range(len(records))]
