"""The index of outputs and ledger entries ignores or rejects everything else in these topics."""

from base64 import b64encode

import pytest

from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_schemas import DeadLetterHeaders
from knowledgepulse_worker.settings import TopicSettings
from knowledgepulse_worker.tools.audit import source_index
from knowledgepulse_worker.tools.audit.source_index import SourceIndex

PARTITIONS = 2


@pytest.fixture
def index(monkeypatch):
    monkeypatch.setattr(source_index, "_FORMER_REPEATS", 8)
    with SourceIndex(TopicSettings(), PARTITIONS) as index:
        yield index


def scored(source, *, partition=1, topic="rejected", before=()):
    headers = (*before, ("kp-source", source), ("kp-score", b"{}"), ("kp-policy", b"p"))
    return OutputRecord(topic, partition, 1, b"key", b"{}", headers)


def dead_letter(offset, *, partition=1, topic="raw-traces"):
    headers = DeadLetterHeaders(
        exception="InvalidRecordError",
        message="",
        topic=topic,
        partition=partition,
        offset=offset,
        reason="empty",
    )
    return OutputRecord("dead-letter", partition, 1, b"key", b"", tuple(headers.to_kafka()))


@pytest.mark.parametrize(
    "record",
    [
        OutputRecord("rejected", 0, 1, None, b"somebody else's", ()),
        scored(None),
        scored(b""),
        scored(b"raw-traces/1"),
        scored(b"raw-traces/1/-1"),
        scored(b"raw-traces/2/1"),
        scored(b"raw-traces/1/9999999999999999999"),
        scored(b"raw-traces/1/\xd9\xa1"),
        scored(b"else/1/1"),
        OutputRecord("dead-letter", 0, 1, None, b"", (("__streams.errors.offset", b"1"),)),
        dead_letter(1, partition=2),
        dead_letter(1, topic="else"),
        dead_letter(2**64),
    ],
)
def test_outputs_without_a_source_in_the_raw_topic_are_foreign(index, record):
    index.add_outputs([record])
    index.complete()

    assert index.foreign == 1
    assert [known for partition in range(PARTITIONS) for known in index.known(partition)] == []
    assert index.base64.total() == 0


def test_outputs_whose_headers_a_connect_cluster_wrote_as_base64_are_counted_for_the_warning(index):
    index.add_outputs(
        [scored(b64encode(b"raw-traces/1/1"), topic=topic) for topic in ("rejected", "contribute")]
    )
    index.add_outputs([scored(b64encode(b"raw-traces/1/2"))])

    assert (index.foreign, index.base64) == (3, {"rejected": 2, "contribute": 1})


def test_the_last_header_with_a_name_is_the_workers(index):
    index.add_outputs([scored(b"raw-traces/1/7", before=(("kp-source", b"raw-traces/0/3"),))])
    index.complete()

    assert [known.offset for known in index.known(1)] == [7]
    assert list(index.known(0)) == []


@pytest.mark.parametrize(
    ("sources", "rewinds"),
    [
        ([*range(30), *range(25, 35)], []),
        ([*range(30), *range(10, 30)], [range(10, 30)]),
        ([*range(30), 10], []),
        ([*range(30), *range(10, 17)], []),
        ([*range(30), *range(22, 35)], []),
        ([*range(8), *range(1, 15), *range(8, 22), *range(15, 30)], []),
        ([*range(58), *range(51, 65), *range(58, 72), *range(65, 80), 10], []),
    ],
    ids=[
        "repeated",
        "rewound",
        "one of long ago",
        "too short a stretch",
        "as far as can be",
        "repeated again and again",
        "again and again, and one of long ago",
    ],
)
def test_detects_rewinds_beyond_what_former_releases_repeated(index, sources, rewinds):
    index.add_outputs(scored(b"raw-traces/1/%d" % source) for source in sources)
    index.complete()

    assert index.rewinds(1) == rewinds
    assert index.rewinds(0) == []


def test_finds_the_first_source_in_an_output_partition(index):
    index.add_outputs([scored(b"raw-traces/1/5", partition=0), scored(b"raw-traces/1/4", partition=0)])

    assert index.first_source("rejected", 0, 1) == 5
    assert index.first_source("rejected", 1, 1) == float("inf")
