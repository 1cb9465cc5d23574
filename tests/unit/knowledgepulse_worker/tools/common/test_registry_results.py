"""The topic of contributions: what a reader makes of it."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.kafka.worker_topics import contributions_topic_name
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common import registry_results as module
from support.scored import scored_record
from support.written import Written


async def test_a_foreign_record_does_not_hide_the_contributions(monkeypatch, caplog):
    settings, scored = Settings(embedding={"backend": "none"}), scored_record()
    name = contributions_topic_name(settings.kafka.group)
    written = Written(name)
    ours = module.RegistryResult(scored.id, scored.source, "accepted", "https://registry.example")
    for value in (b"a stranger's", ours.encode(), None):
        written.append(Record(name, 0, 0, 0, 0, b"key", value, None, 0, 0, ()))

    async def describe(_names):
        return {name: Topic(name, 1, 1_000_000)}

    @asynccontextmanager
    async def admin(*_):
        yield SimpleNamespace(describe=describe)

    @asynccontextmanager
    async def connected(*_):
        yield written.reader

    monkeypatch.setattr(module, "TopicAdmin", admin)
    monkeypatch.setattr(module, "TopicReader", connected)

    assert await module.read_contributions(settings, [scored]) == [ours]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{name}: foreign records skipped: 2, such as offset 0 (")
