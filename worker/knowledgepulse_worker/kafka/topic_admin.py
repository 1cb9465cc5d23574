"""Describe the worker's topics, and create missing ones."""

from __future__ import annotations

import difflib
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager

from knowledgepulse_kafka.admin import Admin
from knowledgepulse_kafka.errors import SecurityError, TopicError
from knowledgepulse_kafka.rights import Right, require_rights
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.topics import COMPACTED, Topic, missing_topics
from knowledgepulse_worker.kafka.worker_topics import (
    CHANGELOG_CONFIG,
    changelog_topic_name,
    obstacles,
    output_config,
    policies_topic_name,
    replays_topic_name,
)
from knowledgepulse_worker.message_text import did_you_mean
from knowledgepulse_worker.settings import REMEDY, KafkaSettings, Settings, TopicSettings

logger = logging.getLogger(__name__)

_MIN_SIMILARITY = 0.8
"""The similarity of two names (:func:`difflib.get_close_matches`) of which one may be misspelt."""


class TopicAdmin(Admin):
    """Describes the worker's topics, and creates missing ones."""

    def __init__(self, kafka: KafkaSettings, topics: TopicSettings, throttle: Throttle | None = None) -> None:
        super().__init__(kafka.client_config(), throttle)
        self._kafka = kafka
        self._topics = topics

    @property
    def changelog(self) -> str:
        """The changelog's name."""
        return changelog_topic_name(self._kafka.group)

    @property
    def replays(self) -> str:
        """The name of the topic that records which dead letters were replayed."""
        return replays_topic_name(self._kafka.group)

    @property
    def policies(self) -> str:
        """The name of the topic that keeps every policy that was in force."""
        return policies_topic_name(self._kafka.group)

    @property
    def written(self) -> set[str]:
        """The names of the topics that a worker's transactions write to."""
        return {*self._topics.outputs, *self._topics.copies, self.changelog}

    @property
    def own(self) -> set[str]:
        """The names of all the worker's topics."""
        published = (*self._topics.outputs, *self._topics.copies)
        return {self._topics.raw, *published, self.changelog, self.policies, self.replays}

    async def existing(self, *needed: str) -> dict[str, Topic]:
        """Return the worker's existing topics, by name.

        Raises:
            TopicError: a needed one is missing.
        """
        return await self._with(needed, await self.describe(self.own))

    async def required(self, names: Collection[str], remedy: str = REMEDY) -> dict[str, Topic]:
        """Return topics by name.

        Raises:
            TopicError: one is missing; the text ends with the remedy.
        """
        return await self._with(names, await self.describe(names), remedy)

    async def require_existing(self, name: str) -> None:
        """Check that a topic exists; unlike producing to it, this never creates it.

        Raises:
            TopicError: it does not; names the nearest one that does.
        """
        names = await self.names()
        if name not in names:
            hint = did_you_mean(name, names)
            raise TopicError(f"the topic {name} does not exist; {hint}`kp-worker topics` creates it")

    async def create_missing(self, partitions: int, replication_factor: int) -> dict[str, Topic]:
        """Create the missing topics; return them by name.

        Output topics keep records forever: outputs carry the timestamp of their raw record, so a topic with
        retention by age would delete the output of an old record as soon as it is published.

        Args:
            partitions: the partition count of a missing raw topic. Outputs and changelog follow the raw
                topic's, and the policies need only one.
            replication_factor: the replication factor of new topics; -1 for the broker's default.
        """
        existing = await self.existing()
        created: dict[str, Topic] = {}
        raw = existing.get(self._topics.raw)
        missing = self.missing(existing, raw.partitions if raw else partitions)
        if raw is None:
            raw = await self.create(self._topics.raw, partitions, replication_factor, {})
            created[raw.name] = raw
        configs = {self.changelog: CHANGELOG_CONFIG, self.policies: COMPACTED}
        for name, count in missing.items():
            if name not in created:
                config = configs.get(name) or output_config(raw)
                created[name] = await self.create(name, count, replication_factor, config)
        return created

    def missing(self, existing: Collection[str], partitions: int) -> dict[str, int]:
        """Return the partition counts of the missing topics, by name; see :meth:`create_missing`.

        Args:
            existing: the names of the existing topics, or these topics by name.
            partitions: the partition count of the raw topic.
        """
        published = (*self._topics.outputs, *self._topics.copies)
        wanted = dict.fromkeys((self._topics.raw, *published, self.changelog), partitions)
        return {name: count for name, count in {**wanted, self.policies: 1}.items() if name not in existing}

    async def create_if_missing(self, name: str, partitions: int, config: dict[str, str]) -> None:
        """Create a topic if it is missing; only then is the right to create topics needed.

        See :meth:`create`.
        """
        if name not in await self.describe([name]):
            await self.create(name, partitions, -1, config)

    async def grow_changelog(self, topics: Mapping[str, Topic]) -> Topic:
        """Add partitions to the changelog if the raw topic has more; return the changelog.

        Args:
            topics: the existing topics, with these two.

        Raises:
            SecurityError: the client has no right to add partitions.
            TopicError: the brokers refuse to add them.
        """
        raw, changelog = topics[self._topics.raw], topics[self.changelog]
        if changelog.partitions >= raw.partitions:
            return changelog
        grown = await self.add_partitions(changelog.name, raw.partitions)
        logger.warning(
            "%s now has %d partitions instead of %d, like %s",
            *(changelog.name, raw.partitions, changelog.partitions, raw.name),
        )
        return grown

    async def usable(self) -> dict[str, Topic]:
        """Check and return the existing topics; change nothing.

        Raises:
            TopicError: a topic that a worker does not create itself is missing, or a topic's settings would
                stop the worker.
        """
        existing = await self.existing(self._topics.raw, *self._topics.outputs, *self._topics.copies)
        own = (existing.get(name) for name in (self.changelog, self.policies))
        if problems := [*obstacles(existing[self._topics.dead_letter], *own)]:
            raise TopicError("; ".join(problems))
        return existing

    async def require_own_group(self, raw: Topic) -> None:
        """Check that no other deployment has the same group, and so the same ledger.

        A topic that the client may not describe is not seen.

        Raises:
            TopicError: the group has positions in another topic that exists.
        """
        for other in sorted(await self.topics_of_group(raw) - {raw.name}):
            group, servers = self._kafka.group, self._kafka.bootstrap_servers
            raise TopicError(
                f"kafka.group: {group}: has positions in {other} too, but topics.raw is {raw.name}. "
                "Deployments with one group cut each other's ledger: give each a group of its own. If "
                "topics.raw was changed, delete the former positions: kafka-consumer-groups.sh "
                f"--bootstrap-server {servers} --delete-offsets --group {group} --topic {other}"
            )

    async def require(self) -> dict[str, Topic]:
        """Check and return the topics; create the changelog and the topic of policies if they are missing.

        If the raw topic has more partitions than the changelog, so does the changelog afterwards, or the log
        says what to do. Partitions without a ledger are not read.

        Raises:
            TopicError: a topic is missing, or its settings would stop the worker.
        """
        existing = await self.usable()
        if self.changelog not in existing or self.policies not in existing:
            partitions = existing[self._topics.raw].partitions
            existing |= await self.create_missing(partitions, replication_factor=-1)
        raw, changelog = existing[self._topics.raw], existing[self.changelog]
        try:
            existing[changelog.name] = await self.grow_changelog(existing)
        except SecurityError as error:
            logger.warning(
                "%s has %d partitions and %s has %d, so records of the others are not read: %s; "
                "`kp-worker topics` adds them for a user who may",
                *(changelog.name, changelog.partitions, raw.name, raw.partitions, error),
            )
        return existing

    async def _with(
        self, needed: Iterable[str], topics: Mapping[str, Topic], remedy: str = REMEDY
    ) -> dict[str, Topic]:
        """Return the topics; raise the error for missing ones, with those of nearly the same name."""
        if missing := [name for name in needed if name not in topics]:
            others = set(await self.names()) - self.own
            near = [
                close
                for name in missing
                for close in difflib.get_close_matches(name, others, 1, _MIN_SIMILARITY)
            ]
            hint = f"did you mean {', '.join(near)}? Otherwise, " if near else ""
            raise missing_topics(missing, hint + remedy)
        return dict(topics)


@asynccontextmanager
async def permitted_admin(settings: Settings, rights: Iterable[Right]) -> AsyncIterator[TopicAdmin]:
    """Check that a program has its rights, and connect to its topics.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
    """
    await require_rights(settings.kafka.client_config(), rights)
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        yield admin
