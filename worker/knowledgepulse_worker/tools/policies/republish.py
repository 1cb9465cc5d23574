"""Republish records, rescored under another policy, to topics of the caller's choice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from knowledgepulse_kafka.idempotent_publisher import IdempotentPublisher
from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.rights import WRITE
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.policy import Decision, Policy
from knowledgepulse_worker.records.decode import with_quality_score
from knowledgepulse_worker.records.output_headers import HEADERS, worker_headers
from knowledgepulse_worker.records.score_header import encode_score
from knowledgepulse_worker.scoring import RescoreReport, Score, scores_under
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.policies.scored_topics import (
    ScoredTopics,
    open_scored_topics,
    require_topics,
)
from knowledgepulse_worker.tools.terminal.arguments import Period

_MAX_UNCONFIRMED = 500


Targets = Mapping[Decision, Topic]
"""The target topics of rescored records."""


async def republish(
    settings: Settings, period: Period, policy: Policy, names: Mapping[Decision, str], *, live: bool
) -> RescoreReport:
    """Rescore a period's records and publish them with their new score, decision and policy.

    Key, timestamp and all other data of a record are unchanged.

    ``names``: the topics, by decision. ``live``: allow the workers' own.

    Raises:
        InputError: there are no scored traces; see also :func:`check_targets`.
        DeliveryError: the broker rejected a record; see also :func:`require_topics`.
    """
    allowed = {*settings.topics.scored} if live else set()
    check_targets([*names.values()], TopicAdmin(settings.kafka, settings.topics).own, allowed)
    topics = await require_topics(settings, [*names.values()], WRITE, "create them first")
    targets = dict(zip(names, topics, strict=True))
    async with (
        open_scored_topics(settings) as scored,
        IdempotentPublisher(
            settings.kafka.client_config(), max(topic.max_message_bytes for topic in topics)
        ) as publisher,
    ):
        rescored = await send_rescored(scored, period, policy, targets, publisher)
    if not rescored.traces:
        raise InputError("no scored traces to rescore")
    return rescored


async def send_rescored(
    topics: ScoredTopics, period: Period, policy: Policy, targets: Targets, publisher: IdempotentPublisher
) -> RescoreReport:
    """Rescore and publish the records of topics; return once all of them are confirmed."""
    scores = await _scores(topics, period, policy)
    rescored = RescoreReport(policy)
    deliveries: list[asyncio.Future[Any]] = []
    partitions = {topic.name: topic.partitions for topic in topics.topics}
    async for record, scored in topics.read(period):
        score = rescored.add(scored, scores.get((scored.source, scored.id)))
        topic = targets[score.decision]
        former = worker_headers(record.headers)
        assert former is not None  # noqa: S101 - which made it a scored record
        around = () if former.wrapping is None else former.wrapping.around
        ours = (scored.source.encode(), encode_score(score), policy.digest.encode())
        output = OutputRecord(
            topic=topic.name,
            partition=record.partition if topic.partitions == partitions[record.topic] else None,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=with_quality_score(record.value, score.quality_score, steps=around),
            headers=(
                *record.headers[: former.start],
                *zip(HEADERS, ours, strict=True),
                *record.headers[former.start + len(HEADERS) :],
            ),
        )
        deliveries.append(await publisher.send_record(output))
        if len(deliveries) >= _MAX_UNCONFIRMED:
            await asyncio.gather(*deliveries)
            deliveries.clear()
    await asyncio.gather(*deliveries)
    return rescored


async def _scores(topics: ScoredTopics, period: Period, policy: Policy) -> dict[tuple[str, str], Score]:
    """Return the scores of a policy with shares, which depend on the order of offsets, not of the topics."""
    if all(profile.share is None for profile in policy.profiles.values()):
        return {}
    records = [scored async for _, scored in topics.read(period)]
    topics.repeats = topics.foreign = 0
    scores = scores_under(records, policy)
    return {(record.source, record.id): score for record, score in zip(records, scores, strict=True)}


def check_targets(names: Sequence[str], own: set[str], allowed: set[str]) -> None:
    """Check that the targets are different topics that the workers do not use.

    Raises:
        InputError: a target is one of the workers' topics and not allowed, or two targets are the same.
    """
    for name, count in Counter(names).items():
        if name in own - allowed:
            hint = "" if allowed else "; --live allows those of scored traces"
            raise InputError(f"{name} is one of the workers' topics{hint}")
        if count > 1:
            raise InputError(f"{name} cannot be the target of two decisions: name a topic for each")
