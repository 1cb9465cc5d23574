"""The policies that were ever in force, by digest."""

from __future__ import annotations

from collections.abc import Sequence

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.kafka.policy_topic import KeptPolicy, read_policies
from knowledgepulse_worker.kafka.topic_reader import TopicReader
from knowledgepulse_worker.kafka.topics import policies_topic_name
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.policies.rights import kept_policy_rights, require_topics


async def policy_history(settings: Settings) -> list[KeptPolicy]:
    """Return the policies in the order in which they last came into force; at least one.

    Raises:
        InputError: no policy has come into force yet; see also :func:`require_topics`.
    """
    topic = policies_topic_name(settings.kafka.group)
    await require_topics(settings, [topic], kept_policy_rights(settings), "; `kp-worker topics` creates it")
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
