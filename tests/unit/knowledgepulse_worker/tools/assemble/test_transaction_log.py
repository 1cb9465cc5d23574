"""The transactions of an assembler's partition: what a reader makes of the topic."""

from contextlib import asynccontextmanager

from fakes.memory_reader import MemoryReader
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.transaction_log import POSITION, AssemblyLog


async def test_a_foreign_record_does_not_stop_an_assembler(caplog):
    """Each is skipped, and they are logged once with their number."""
    reader = MemoryReader()

    @asynccontextmanager
    async def connected(*_):
        yield reader

    settings = Settings(embedding={"backend": "none"})
    log = AssemblyLog(settings, 10_000, 0, new_publisher=lambda *_: None, new_reader=connected)
    topic = log._topic
    written = ((b"a", b"3"), (None, b"1"), (b"b", b"x"), (POSITION, b"7"), (b"\xff", b"1"), (POSITION, None))
    for key, value in written:
        reader.append(Record(topic, 0, 0, 0, 0, key, value, None, 0, 0, ()))

    state = await log.read()

    assert (state.position, state.published) == (7, {"a": 3})
    assert caplog.messages == [
        f"{topic}: foreign records skipped: 4, such as offset 1 (not a mark of an assembler)"
    ]
