"""The topic that keeps every policy that was in force.

Its records are keyed by the policy's digest, which outputs carry in the header ``kp-policy``; those of
releases up to 0.3.0 have the digest of that time, the beginning of today's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from pydantic import ValidationError

from knowledgepulse_kafka.client_types import RequestError
from knowledgepulse_kafka.errors import DeliveryError
from knowledgepulse_kafka.idempotent_publisher import IdempotentPublisher, delivery_error
from knowledgepulse_kafka.topic_reader import Reader, Record, TopicReader
from knowledgepulse_worker.kafka.foreign_records import ForeignRecords, skipping_foreign_records
from knowledgepulse_worker.kafka.worker_topics import policies_topic_name
from knowledgepulse_worker.policy import MINIMUMS, DomainPolicy, Policy, is_digest_of
from knowledgepulse_worker.settings import Settings

_LAST_RECORDS = 8
"""The number of records that the search for the last policy reads first."""


@dataclass(frozen=True, slots=True)
class KeptPolicy:
    """A policy that came into force.

    Attributes:
        policy: the policy.
        since_ms: when it last came into force, in milliseconds since the epoch.
    """

    policy: Policy
    since_ms: int


async def keep_policy(settings: Settings, policy: Policy) -> float:
    """Record that a policy comes into force, unless it was recorded last, and wait for the confirmation.

    Returns:
        when it came into force, in seconds since the epoch.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
        TopicError: the topic cannot be read.
        DeliveryError: the brokers did not confirm the record.
    """
    topic = policies_topic_name(settings.kafka.group)
    async with TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
        last = await last_policy(reader, topic)
    if last is not None and last.policy.digest == policy.digest:
        return last.since_ms / 1000
    value = _complete(policy).model_dump_json(exclude_none=True, exclude_unset=True).encode()
    async with IdempotentPublisher(settings.kafka.client_config()) as publisher:
        delivery = await publisher.send(topic, value, policy.digest.encode())
        try:
            async with asyncio.timeout(limit := settings.kafka.request_timeout):
                await delivery
        except TimeoutError:
            raise DeliveryError(f"{topic}: not confirmed within {limit:g} s") from None
        except RequestError as error:
            raise delivery_error(topic, error) from error
    return time.time()


async def last_policy(reader: Reader, topic: str) -> KeptPolicy | None:
    """Return the policy that came into force last; None if there is none.

    The topic is read backwards from its end, until that policy is found.
    """
    held = await reader.bounds(topic, 0)
    stop, count = held.stop, _LAST_RECORDS
    with skipping_foreign_records(topic) as foreign:
        while stop > held.start:
            start = max(held.start, stop - count)
            kept = [entry async for entry in _policies(reader, topic, range(start, stop), foreign)]
            if kept:
                return kept[-1]
            stop, count = start, 2 * count
    return None


async def read_policies(reader: Reader, topic: str) -> list[KeptPolicy]:
    """Return the policies that were in force, in the order in which they last came into force."""
    kept: dict[str, KeptPolicy] = {}
    with skipping_foreign_records(topic) as foreign:
        async for entry in _policies(reader, topic, await reader.bounds(topic, 0), foreign):
            kept.pop(entry.policy.digest, None)
            kept[entry.policy.digest] = entry
    return list(kept.values())


async def _policies(
    reader: Reader, topic: str, offsets: range, foreign: ForeignRecords
) -> AsyncIterator[KeptPolicy]:
    """Yield the policies in a range of offsets, and count other records as foreign."""
    async for record in reader.read(topic, 0, offsets):
        if (kept := foreign.decoded(record, _kept_policy)) is not None:
            yield kept


def _kept_policy(record: Record) -> KeptPolicy:
    """Parse a record.

    Raises:
        ValueError: the record is not a policy; the text says why.
    """
    try:
        policy = Policy.model_validate_json(record.value or b"")
    except ValidationError:
        raise ValueError("not a policy of this release") from None
    if not is_digest_of(policy, (record.key or b"").decode(errors="replace")):
        raise ValueError(f"policy {policy.digest} has another policy's digest as its key")
    return KeptPolicy(policy, record.timestamp)


def _complete(policy: Policy) -> Policy:
    """Return the policy with everything that has an effect, so that later defaults cannot change it.

    Earlier releases can read it, unless it has what they do not know.
    """
    profiles = policy.profiles
    has_share = any(profile.share is not None for profile in profiles.values())
    used = [name for name in MINIMUMS if any(getattr(profile, name) for profile in profiles.values())]
    domains = {
        name: DomainPolicy(
            **profile.rule,
            **{name: getattr(profile, name) for name in used},
            weights=profile.weights,
            learned=profile.learned,
        )
        for name, profile in profiles.items()
    }
    of_share = {"share_window"} if policy.agent_cap == 1 else {"share_window", "agent_cap"}
    window = policy.model_dump(include=of_share if has_share else set())
    of_endings = {"withhold_endings"} if policy.withhold_endings else set()
    guards = policy.model_dump(include={"contribute_visibility", "contribute_privacy_level"} | of_endings)
    return Policy(threshold=policy.threshold, **window, **guards, domains=domains)
