"""A group's id that the brokers keep for a group of another type."""

from types import SimpleNamespace

import pytest
from aiokafka.errors import IncompatibleBrokerVersion

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import BrokerError
from knowledgepulse_kafka.group_type import require_group_of_consumers


class Coordinator:
    """A client whose coordinator lists groups, or does not know the request."""

    def __init__(self, *groups):
        self._groups = groups

    async def coordinator_lookup(self, _kind, _group):
        return 7

    async def send(self, _node, request):
        if not self._groups:
            raise IncompatibleBrokerVersion(request.NEEDS)
        listed = [group for group in self._groups if group[3].lower() in request.types]
        return SimpleNamespace(groups=listed)


@pytest.mark.parametrize(
    ("kind", "state", "text"),
    [
        ("Share", "Empty", "for a share group, which has no members; .* kafka-share-groups.sh --delete"),
        ("Streams", "Stable", "for a streams group, which has members; .* kafka-streams-groups.sh --delete"),
    ],
)
async def test_a_group_of_another_type_is_named_with_the_remedy(kind, state, text):
    """It was told as another application, whose members nobody could stop."""
    coordinator = Coordinator(("other", "", "Stable", "Share", {}), ("kp", "", state, kind, {}))

    with pytest.raises(BrokerError, match=f"^kafka.group: kp: the brokers keep this id {text}$"):
        await require_group_of_consumers(coordinator, Config(group="kp", prefix="kafka."))


@pytest.mark.parametrize(
    "groups",
    [
        [("kp", "consumer", "Stable", "Classic", {}), ("other", "", "Empty", "Share", {})],
        [],
    ],
    ids=["its own", "broker before 3.8"],
)
async def test_a_group_of_consumers_or_of_no_known_type_is_joined(groups):
    await require_group_of_consumers(Coordinator(*groups), Config(group="kp"))
