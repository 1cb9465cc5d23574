"""When runs are complete, and that each span is in one of them or late."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.settings import AssembleSettings
from knowledgepulse_worker.tools.assemble import open_runs
from knowledgepulse_worker.tools.assemble.collector_exports import SpanExport
from knowledgepulse_worker.tools.assemble.open_runs import RUN_MEMORY, SPAN_MEMORY, OpenRuns
from support.memory import traced

GRACE, IDLE, WAIT = 10, 60, 600
SETTINGS = AssembleSettings(grace=GRACE, idle=IDLE, longest_wait=WAIT)


def span(trace_id, number, *, size=1):
    """A span; number 0 is the root."""
    return SpanExport(trace_id, str(number), number == 0, b"x" * size)


class Partition:
    """A partition that is read second by second."""

    def __init__(self, **changes):
        self.runs = OpenRuns(SETTINGS.model_copy(update=changes))
        self.complete = []

    def read(self, seconds, *spans):
        """Read a record; returns what `add` does."""
        self.runs.arrive(self.runs.position, seconds * 1000)
        self.complete += self.runs.completed()
        added = self.runs.add(spans)
        self.complete += self.runs.completed()
        return added

    @property
    def how(self):
        """Why each run was complete, and its spans."""
        return [(run.trace_id, run.completed_by, "".join(run.spans)) for run in self.complete]


def test_a_run_is_complete_a_grace_after_its_root_span():
    partition = Partition()
    partition.read(0, span("a", 1))
    partition.read(50, span("a", 0))
    partition.read(50 + GRACE - 1, span("a", 2))
    assert partition.how == []

    partition.read(50 + GRACE)
    assert partition.how == [("a", "root", "102")]


def test_a_run_without_its_root_is_complete_after_idleness():
    partition = Partition()
    partition.read(0, span("a", 1))
    partition.read(IDLE - 1, span("a", 2))
    partition.read(2 * IDLE - 2)
    assert partition.how == []

    partition.read(2 * IDLE - 1)
    assert partition.how == [("a", "idle", "12")]


def test_a_run_is_taken_as_it_is_after_the_longest_wait():
    partition = Partition()
    for second in range(0, WAIT, IDLE - 1):
        partition.read(second, span("a", 1 + second))
    partition.read(WAIT)
    assert [(run.trace_id, run.completed_by) for run in partition.complete] == [("a", "wait")]


def test_time_is_the_newest_timestamp_so_far():
    """An old timestamp, as of another Collector, neither completes a run at once nor keeps one open."""
    partition = Partition()
    partition.read(1000, span("a", 0))
    partition.read(0, span("b", 0))
    assert partition.how == []
    partition.read(1000 + GRACE)
    assert partition.how == [("a", "root", "0"), ("b", "root", "0")]


@pytest.mark.parametrize(
    ("limit", "sizes", "completed_by"),
    [({"run_spans": 2}, [1, 1, 1], "spans"), ({"run_bytes": 1024}, [1000, 25], "bytes")],
)
def test_a_run_beyond_a_limit_is_taken_as_it_is_and_the_rest_is_late(limit, sizes, completed_by):
    partition = Partition(**limit)
    for number, size in enumerate(sizes):
        assert partition.how == []
        partition.read(0, span("a", number + 1, size=size))
    assert [run.completed_by for run in partition.complete] == [completed_by]

    rest = span("a", 9)
    assert partition.read(1, rest)[0] == [rest]
    assert len(partition.complete) == 1


def test_open_runs_are_bounded_in_bytes_and_the_oldest_goes_first():
    partition = Partition(open_bytes=1024 + 2 * (RUN_MEMORY + SPAN_MEMORY))
    for trace_id in ("a", "b", "c", "d"):
        partition.read(0, span(trace_id, 1, size=500))
        assert partition.runs.size <= 1024
    assert [run.trace_id for run in partition.complete] == ["a", "b"]
    assert {run.completed_by for run in partition.complete} == {"memory"}


def test_small_runs_are_bounded_by_the_memory_that_they_take():
    """A million runs of one small span took four times their spans' bytes, and closed ones took some more."""
    partition = Partition(open_bytes=1_000_000)
    with traced() as memory:
        for number in range(20_000):
            partition.read(0, span(f"{number:032x}", 1, size=10))
            partition.complete.clear()
            partition.runs._published.clear()
    assert memory.held < 1_500_000
    assert len(partition.runs) > 1000


def test_a_repeated_span_is_counted_once():
    partition = Partition()
    partition.read(0, span("a", 1, size=10))
    assert partition.read(1, span("a", 1, size=10), span("a", 0, size=1))[1] == 1
    assert partition.runs.size == 11


def test_published_runs_are_forgotten_unless_a_span_may_be_read_again(monkeypatch):
    monkeypatch.setattr(open_runs, "PUBLISHED_RUNS", 1)
    partition = Partition()
    partition.read(0, span("open", 1))
    partition.read(0, span("a", 0), span("b", 0))
    partition.read(GRACE)
    assert len(partition.complete) == 2
    assert partition.runs.forget() == [], "after a crash, reading starts at the first offset"

    partition.read(GRACE + IDLE)
    assert partition.runs.forget() == ["a", "b"]
    assert partition.read(GRACE + IDLE, span("open", 2))[0]


def test_a_published_run_is_not_forgotten_while_a_late_span_of_it_may_be_read_again(monkeypatch):
    monkeypatch.setattr(open_runs, "PUBLISHED_RUNS", 0)
    partition = Partition()
    partition.read(0, span("a", 0))
    partition.read(GRACE, span("open", 1))
    partition.read(GRACE, span("a", 1))
    assert partition.runs.restart_offset == 1
    assert partition.runs.forget() == []


def test_a_shorter_time_after_a_restart_loses_no_span():
    """Where the outputs are published already, a run that is still open gets all its spans first."""
    runs = OpenRuns(SETTINGS.model_copy(update={"idle": 1.0}), position=0, resume=2)
    for offset in (0, 1):
        runs.arrive(offset, offset * 50_000)
        assert list(runs.completed()) == []
        runs.add([span("a", 1 + offset)])
    runs.arrive(2, 100_000)
    assert [set(run.spans) for run in runs.completed()] == [{"1", "2"}]


# --- in any order; the histories of tests/simulation have crashes

SPANS = st.builds(span, st.sampled_from("abcd"), st.integers(0, 3))


@st.composite
def partitions(draw):
    """Records of a few runs: seconds, and spans in any order, with repeats."""
    records = draw(
        st.lists(st.tuples(st.integers(0, 30), st.lists(SPANS, max_size=3)), min_size=1, max_size=20)
    )
    seconds = accumulate(pause for pause, _ in records)
    return [(second, spans) for second, (_, spans) in zip(seconds, records, strict=True)]


def play(records):
    """Read a partition to its end; return the complete runs and the late spans."""
    runs, late, open_runs = [], [], OpenRuns(SETTINGS)
    for offset, (second, spans) in enumerate([*records, (10_000, [])]):
        open_runs.arrive(offset, second * 1000)
        runs += open_runs.completed()
        late += open_runs.add(spans)[0]
        runs += open_runs.completed()
    return runs, late


@given(partitions())
def test_every_span_is_in_one_published_run_or_late(records):
    runs, late = play(records)

    assert len({run.trace_id for run in runs}) == len(runs), "a run is published twice"
    spans = [(run.trace_id, number) for run in runs for number in run.spans]
    assert len(set(spans)) == len(spans)
    late_ones = {(late_span.trace_id, late_span.span_id) for late_span in late}
    assert set(spans) | late_ones == {
        (arrived.trace_id, arrived.span_id) for _, arrivals in records for arrived in arrivals
    }


@given(partitions())
def test_a_run_whose_spans_arrive_within_the_grace_is_complete_in_any_order(records):
    records = [(0, spans) for _, spans in records]
    runs, late = play(records)

    expected: dict[str, set[str]] = {}
    for _, spans in records:
        for arrived in spans:
            expected.setdefault(arrived.trace_id, set()).add(arrived.span_id)
    assert {run.trace_id: set(run.spans) for run in runs} == expected
    assert late == []
