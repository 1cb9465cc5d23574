"""The assemblers' group and topics, and the rights that they need."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.rights import READ, READ_AND_WRITE, WRITE, Right, topic_rights
from knowledgepulse_kafka.topics import CLEANUP_POLICY, COMPACTED, MAX_MESSAGE_BYTES, Topic
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.worker_topics import OUTPUT_HEADROOM
from knowledgepulse_worker.settings import Settings

logger = logging.getLogger(__name__)


def assembled_topic_name(group: str) -> str:
    """Return the name of the topic that records which agent runs were published."""
    return f"{group}-assembled"


def assembly_group(group: str) -> str:
    """Return the consumer group of the assemblers."""
    return f"{group}-assemble"


def assembly_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker assemble`` needs.

    Only the broker can check two more: Write on the transactional ids, which begin with the assemblers'
    group, and Create on the topics of late spans and of published runs, if they are missing.
    """
    group = settings.kafka.group
    yield from topic_rights(READ, settings.assemble.spans)
    written = (settings.topics.raw, settings.topics.dead_letter, settings.assemble.late)
    yield from topic_rights(WRITE, *written)
    yield from topic_rights(READ_AND_WRITE, assembled_topic_name(group))
    yield Right("Read", "group", assembly_group(group))


async def require_topics(admin: TopicAdmin, settings: Settings) -> dict[str, Topic]:
    """Return the topics of `kp-worker assemble`; create those of late spans and published runs.

    Raises:
        TopicError: another topic is missing, or two have the same name.
    """
    assemble = settings.assemble
    assembled = assembled_topic_name(settings.kafka.group)
    needed = (settings.topics.raw, settings.topics.dead_letter, assemble.spans)
    names = {*admin.own, assemble.spans, assemble.late, assembled}
    if len(names) < len(admin.own) + 3:
        raise TopicError(
            f"assemble.spans ({assemble.spans}) and assemble.late ({assemble.late}) must differ from each "
            "other and from all other topics"
        )
    existing = await admin.describe({*needed, assemble.late, assembled})
    if missing := [name for name in needed if name not in existing]:
        raise TopicError(
            f"missing: {', '.join(missing)}; `kp-worker topics` creates all but {assemble.spans}, to which "
            "the Collector writes"
        )
    spans = existing[assemble.spans]
    if spans.is_compacted:
        logger.warning(
            "%s has %s=%s: brokers remove spans once later ones have their key, so runs lose spans",
            *(spans.name, CLEANUP_POLICY, spans.cleanup_policy),
        )
    late_config = {MAX_MESSAGE_BYTES: str(spans.max_message_bytes + OUTPUT_HEADROOM)}
    for name, config in ((assemble.late, late_config), (assembled, COMPACTED)):
        if name not in existing:
            existing[name] = await admin.create(name, spans.partitions, -1, config)
    if existing[assembled].partitions != spans.partitions:
        raise TopicError(
            f"{assembled} has {existing[assembled].partitions} partitions, but {spans.name} has "
            f"{spans.partitions}; delete {assembled} when no run is open (late spans of runs that were "
            "published before will start new runs)"
        )
    if existing[assembled].cleanup_policy not in (None, "compact"):
        raise TopicError(
            f"{assembled} has {CLEANUP_POLICY}={existing[assembled].cleanup_policy}, must have compact: "
            "otherwise runs are published again"
        )
    return existing
