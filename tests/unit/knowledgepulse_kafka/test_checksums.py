"""Checksums of record batches, by the processor's instruction and without it."""

import random

import pytest
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_kafka.checksums import by_client, checksum


@pytest.mark.parametrize("function", [checksum, by_client])
def test_the_checksum_is_that_of_rfc_3720(function):
    assert function(b"x123456789y", 1, 10) == 0xE3069283
    assert function(bytes(32), 0, 32) == 0x8A9136AA
    assert function(b"", 0, 0) == 0


@given(st.integers(0, 20_000), st.integers(0, 40), st.randoms(use_true_random=False))
def test_any_part_of_any_size_has_the_client_s_checksum(size, start, source: random.Random):
    data = source.randbytes(start + size + 7)
    assert checksum(data, start, start + size) == calc_crc32c(data[start : start + size])


def test_a_part_that_ends_before_it_begins_is_empty():
    assert checksum(b"abc", 2, 1) == by_client(b"abc", 2, 1) == 0
