"""Our batches against aiokafka's own."""

from copy import deepcopy

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st

from knowledgepulse_kafka import checksums, output_batch
from knowledgepulse_kafka.output_batch import OutputBatch, new_batch
from knowledgepulse_kafka.producer import _append
from knowledgepulse_kafka.records import OutputRecord

BYTES = st.none() | st.binary(max_size=300)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**45),
        BYTES,
        BYTES | st.binary(min_size=5000, max_size=9000),
        st.lists(
            st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), BYTES), max_size=4
        ),
    ),
    min_size=1,
    max_size=12,
)


def both(limit, records):
    """Return what both kinds of batch say to each record, and the batches."""
    ours, theirs = OutputBatch(limit), BatchBuilder(limit, 0, is_transactional=1)
    for timestamp, key, value, headers in records:
        fields = {"timestamp": timestamp, "key": key, "value": value, "headers": headers}
        if theirs.append(**fields) is None:
            last = deepcopy(ours)  # the client takes a few records for a byte larger than they are
            assert last.append(**fields) is None or last.size() == limit
            break
        assert ours.append(**fields)
        assert (ours.size(), ours.record_count()) == (theirs.size(), theirs.record_count())
    for batch in (ours, theirs):
        batch._set_producer_state(2**40, 7, 123)
    return ours, theirs


@pytest.mark.parametrize("has_instruction", [True, False])
@given(records=RECORDS, limit=st.integers(1, 20_000))
@example(records=[(0, None, None, [])], limit=1)
@example(records=[(-1, b"k", b"v", [])], limit=100)
@example(records=[(0, None, None, []), (8192, None, None, [])], limit=77)
@example(records=[(5, b"k", b"v", [("a", None)]), (1, b"k", b"v", [])] * 5000, limit=2**20)
@pytest.mark.slow
def test_a_batch_has_the_bytes_of_the_client_s(has_instruction, records, limit):
    with pytest.MonkeyPatch.context() as patch:
        if not has_instruction:
            patch.setattr(checksums, "checksum", checksums.by_client)
        ours, theirs = both(limit, records)

        assert bytes(ours._build()) == bytes(theirs._build())
        assert ours._build() is ours._build()


def test_a_header_that_is_not_utf_8_is_an_error_and_leaves_the_batch_as_it_was():
    batch = OutputBatch(1000)
    size = batch.size()

    with pytest.raises(UnicodeEncodeError):
        batch.append(timestamp=0, key=b"key", value=b"value", headers=[("\udcff", b"")])

    assert (batch.size(), batch.record_count()) == (size, 0)


@pytest.mark.parametrize(
    ("checksum", "kind"), [(checksums.by_client, BatchBuilder), (lambda *_: 0, OutputBatch)]
)
def test_without_the_instruction_the_client_writes_the_batches(monkeypatch, checksum, kind):
    monkeypatch.setattr(output_batch, "checksum", checksum)
    batch = new_batch(300)
    record = OutputRecord("contribute", 0, 1, b"key", b"value" * 20, (("kp-source", b"raw/0/0"), ("", None)))

    assert isinstance(batch, kind)
    assert [_append(batch, record) for _ in range(3)] == [True, False, False]
    assert batch.record_count() == 1
