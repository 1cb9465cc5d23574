"""The topics of the policy tools, and the rights to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from knowledgepulse_worker.errors import TopicError
from knowledgepulse_worker.kafka.preflight.rights import Right, require_rights, topic_rights
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.topics import Topic, policies_topic_name
from knowledgepulse_worker.settings import Settings


def kept_policy_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker policy show`` and ``history`` need."""
    yield from topic_rights(policies_topic_name(settings.kafka.group), "Read", "DescribeConfigs")


async def require_topics(
    settings: Settings, names: Sequence[str], rights: Iterable[Right], hint: str = ""
) -> list[Topic]:
    """Return topics that exist and may be used.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
        TopicError: a topic is missing.
    """
    await require_rights(settings.kafka, rights)
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topics = await admin.describe(names)
    if missing := [name for name in names if name not in topics]:
        raise TopicError(f"missing: {', '.join(missing)}{hint}")
    return [topics[name] for name in names]
