"""The records of the comparison with other clients are valid traces of one size."""

from itertools import islice

from bench.traces import STREAM_BYTES, endless_texts, endless_traces, of_size
from support.traces import real_traces
from worker.records.decode import decode_trace, with_quality_score
from worker.scoring import embedding_text


def test_every_real_trace_can_be_resized_and_stays_valid():
    for trace in real_traces():
        shaped = of_size(trace, STREAM_BYTES)
        assert abs(len(shaped) - STREAM_BYTES) <= 16
        decode_trace(shaped, STREAM_BYTES * 2)
        assert b'"quality_score":0.5' in with_quality_score(shaped, 0.5)


def test_texts_are_not_repeated():
    """The worker would not embed a repeated text again, and would seem faster than it is."""
    traces = real_traces()[:3]

    endless = list(islice(endless_traces(traces), 9))

    texts = {embedding_text(decode_trace(trace, 2**24))[:20] for trace in endless}
    assert len(texts) == len(endless)
    assert len(set(islice(endless_texts(), 200))) == 200
