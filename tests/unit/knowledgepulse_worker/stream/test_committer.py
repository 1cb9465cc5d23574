"""A commit of an assignment, which may take several transactions."""

from types import SimpleNamespace

import pytest

from knowledgepulse_kafka.commit_outcome import Committed, Rebalanced
from knowledgepulse_kafka.errors import DeliveryError
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_worker.stream.committer import Committer


class Session:
    """A session whose group has rebalanced once, without the program, or whose transactions fail."""

    def __init__(self, error=None):
        self.error = error
        self.member = SimpleNamespace(is_member=True)
        self.memberships = []

    async def commit(self, records, positions, alone, group=None):
        self.memberships.append(group)
        if self.error is not None:
            raise self.error
        return Rebalanced() if len(self.memberships) == 1 else Committed([])


class Assignment:
    """An assignment whose first attempt is followed by another one."""

    def __init__(self):
        self.membership = GroupMetadata("group", "member", 1)
        self._attempts = [SimpleNamespace(records=list, positions={}, alone=()) for _ in range(2)]

    def prepare(self):
        return self._attempts.pop()

    def settle(self, prepared, outcome):
        return self._attempts.pop() if self._attempts else None


async def test_all_attempts_of_a_commit_are_under_the_membership_of_the_assignment():
    """What an ended assignment has left is read again, so the next membership may not commit it."""
    session = Session()

    assert await Committer(session, "raw").commit(Assignment())
    assert session.memberships == [GroupMetadata("group", "member", 1)] * 2


async def test_no_transaction_begins_after_one_that_failed():
    """The end of a worker commits what is complete, but this producer commits nothing any more."""
    session = Session(DeliveryError("not confirmed"))
    committer = Committer(session, "raw")
    with pytest.raises(DeliveryError):
        await committer.commit(Assignment())

    assert not await committer.commit(Assignment())
    assert len(session.memberships) == 1
