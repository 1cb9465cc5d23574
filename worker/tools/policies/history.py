"""The policies that were ever in force, by digest."""

from __future__ import annotations

from collections.abc import Sequence

from worker.errors import InputError, TopicError
from worker.kafka.policy_topic import KeptPolicy, read_policies
from worker.kafka.preflight.rights import require_rights
from worker.kafka.topic_admin import TopicAdmin
from worker.kafka.topic_reader import TopicReader
from worker.settings import Settings
from worker.tools.policies.rights import kept_policy_rights


async def policy_history(settings: Settings) -> list[KeptPolicy]:
    """Return the policies in the order in which they last came into force; at least one.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
        TopicError: the topic is missing or holds something else.
        InputError: no policy has come into force yet.
    """
    await require_rights(settings.kafka, kept_policy_rights(settings))
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topic = admin.policies
        if topic not in await admin.describe([topic]):
            raise TopicError(f"missing: {topic}; `kp-worker topics` creates it")
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        history = await read_policies(reader, topic)
    if not history:
        raise InputError(f"{topic} is empty: no worker has started with it yet")
    return history


def find_policy(history: Sequence[KeptPolicy], digest: str) -> KeptPolicy:
    """Return the policy whose digest begins like this.

    Raises:
        InputError: there is none, or more than one.
    """
    found = [one for one in history if one.policy.digest.startswith(digest)]
    if len(found) == 1:
        return found[0]
    digests = ", ".join(one.policy.digest for one in found or history)
    problem = f"{len(found)} policies begin with it" if found else "no such policy was in force"
    raise InputError(f"{digest}: {problem}: {digests}")
