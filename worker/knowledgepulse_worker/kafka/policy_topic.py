"""The topic of policies: each that was ever in force, by its digest, which outputs name in ``kp-policy``."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from knowledgepulse_worker.errors import TopicError
from knowledgepulse_worker.kafka.output_publisher import connected_publisher
from knowledgepulse_worker.kafka.topic_reader import Reader, TopicReader
from knowledgepulse_worker.kafka.topics import policies_topic_name
from knowledgepulse_worker.policy import DomainPolicy, Policy
from knowledgepulse_worker.records.record import NO_TIMESTAMP, OutputRecord
from knowledgepulse_worker.settings import Settings

POLICY_BYTES = 65_536
"""More than a policy takes: its number of domains is bounded."""


@dataclass(frozen=True, slots=True)
class KeptPolicy:
    """A policy that came into force.

    Attributes:
        since_ms: when it did so last, in milliseconds since the epoch.
    """

    policy: Policy
    since_ms: int


async def keep_policy(settings: Settings, policy: Policy) -> None:
    """Record that a policy comes into force, unless it is the last one recorded; return once confirmed.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
        TopicError: the topic cannot be read, or holds something else.
        DeliveryError: the brokers did not confirm the record.
    """
    topic = policies_topic_name(settings.kafka.group)
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        kept = await read_policies(reader, topic)
    if kept and kept[-1].policy.digest == policy.digest:
        return
    record = OutputRecord(
        topic=topic,
        partition=0,
        timestamp_ms=NO_TIMESTAMP,
        key=policy.digest.encode(),
        value=_complete(policy).model_dump_json(exclude_none=True).encode(),
        headers=(),
    )
    async with connected_publisher(settings.kafka, POLICY_BYTES) as publisher:
        await publisher.send_alone(record)


async def read_policies(reader: Reader, topic: str) -> list[KeptPolicy]:
    """Return the policies that were in force, in the order in which they last came into force.

    Raises:
        TopicError: a record is no policy, or not the one of its key.
    """
    kept: dict[str, KeptPolicy] = {}
    async for record in reader.read(topic, 0, await reader.bounds(topic, 0)):
        try:
            policy = Policy.model_validate_json(record.value or b"")
        except ValidationError:
            raise TopicError(f"{topic}, offset {record.offset}: not a policy; delete this record") from None
        if policy.digest.encode() != record.key:
            raise TopicError(
                f"{topic}, offset {record.offset}: the policy {policy.digest} has the key of another; "
                "delete this record"
            )
        kept.pop(policy.digest, None)
        kept[policy.digest] = KeptPolicy(policy, record.timestamp)
    return list(kept.values())


def _complete(policy: Policy) -> Policy:
    """Return a policy with every weight and threshold in full, which later releases may not change."""
    domains = {
        name: DomainPolicy(threshold=profile.threshold, weights=profile.weights)
        for name, profile in policy.profiles.items()
    }
    return Policy(**policy.model_dump(exclude={"domains"}), domains=domains)
