"""The records of the comparison with other clients are valid traces of one size."""

from bench.traces import STREAM_BYTES, of_size, real_traces
from worker.stream.decode import decode_trace, with_quality_score


def test_every_real_trace_can_be_made_a_valid_one_of_the_size():
    for trace in real_traces():
        shaped = of_size(trace, STREAM_BYTES)
        assert abs(len(shaped) - STREAM_BYTES) <= 16
        decode_trace(shaped, STREAM_BYTES * 2)
        assert b'"quality_score":0.5' in with_quality_score(shaped, 0.5)
