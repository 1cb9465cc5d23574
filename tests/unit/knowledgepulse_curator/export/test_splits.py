"""Splits without leaks, whatever the ties and however the traces are cut into exports."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_curator.export import splits
from knowledgepulse_curator.export.selection import best, spread
from knowledgepulse_curator.export.splits import NEAR_SIMILARITY, ExportedTraces, assign_splits

DIRECTIONS = np.linspace(0, np.pi, 24)
UNIT = np.stack([np.cos(DIRECTIONS), np.sin(DIRECTIONS)], axis=1).astype(np.float32)
"""Of these, neighbours are near-duplicates, and chains of them reach far."""


def sides(groups, vectors, exported=None, **changed):
    options = {"shares": (30.0, 30.0), "seed": 0} | changed
    vectors = np.asarray(vectors, np.float32).reshape(len(groups), -1)
    return assign_splits(groups, vectors, exported or ExportedTraces([], vectors[:0], []), **options)


traces = st.lists(
    st.tuples(st.integers(0, 9).map("task:{}".format), st.integers(0, len(UNIT) - 1)), min_size=1, max_size=25
)


@given(st.lists(traces, min_size=1, max_size=3))
def test_tied_traces_never_lie_on_two_sides_also_across_exports(exports):
    kept = []
    for number, export in enumerate(exports):
        groups = [[task, f"run:{number}.{index}"] for index, (task, _) in enumerate(export)]
        vectors = UNIT[[direction for _, direction in export]]
        before = [list(column) for column in zip(*kept, strict=True)] or [[], [], []]
        exported = ExportedTraces([[task] for task in before[0]], np.reshape(before[1], (-1, 2)), before[2])
        found = sides(groups, vectors, exported)
        tasks = (names[0] for names in groups)
        kept += [row for row in zip(tasks, vectors, found, strict=True) if row[2] is not None]
        if number == 0:
            assert None not in found, "nothing is between two sides before one is chosen"
    for task, vector, side in kept:
        for other, another, its_side in kept:
            if task == other or vector @ another >= NEAR_SIMILARITY:
                assert side == its_side


def test_what_joins_two_sides_is_dropped_and_its_neighbours_are_not():
    seed = next(s for s in range(99) if sides([["a"], ["b"]], UNIT[[0, 8]], seed=s) == ["train", "test"])
    exported = ExportedTraces([["a"], ["b"]], UNIT[[0, 8]], ["train", "test"])
    # One beside each, and one of the first's task that resembles the second.
    assert sides([["c"], ["d"], ["a"]], UNIT[[2, 7, 8]], exported, seed=seed) == ["train", "test", None]


def test_a_fleets_repeats_take_no_memory_for_each_pair():
    """20,000 equal traces are 200 million pairs, once more than a gigabyte of them."""
    groups = [[f"run:{number}"] for number in range(20_000)]
    tracemalloc.start()
    try:
        found = sides(groups, np.tile(UNIT[0], (len(groups), 1)))
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    assert len({*found}) == 1


def test_what_is_tied_to_two_sides_is_compared_in_blocks(monkeypatch):
    """Otherwise each trace would be compared with all before it, one after the other."""
    monkeypatch.setattr(splits, "_ROWS", 2)
    exported = ExportedTraces([["a"], ["b"]], UNIT[[0, 8]], ["train", "test"])
    groups = [["a", "x"], ["b", "x"], ["c"], ["c"], ["x"], ["d"], ["a", "d"]]
    directions = [0, 8, 2, 20, 12, 9, 1]
    # The second is tied to both, by its task and by the first; the sixth has its side from the exported one.
    assert sides(groups, UNIT[directions], exported) == [
        "train",
        None,
        "train",
        "train",
        "train",
        "test",
        None,
    ]


def test_a_group_has_its_side_from_the_seed_alone_and_the_shares_are_kept():
    groups = [[f"task:{number}"] for number in range(4000)]
    none = np.empty((4000, 0), np.float32)
    found = sides(groups, none, shares=(10.0, 20.0))
    assert sides(groups[::-1], none, shares=(10.0, 20.0))[::-1] == found
    assert sides(groups[7:8], none[:1], shares=(10.0, 20.0)) == found[7:8]
    counts = Counter(found)
    assert abs(counts["validation"] - 400) < 80
    assert abs(counts["test"] - 800) < 100
    assert sides(groups, none, shares=(10.0, 20.0), seed=1) != found


def test_a_spread_covers_most():
    bundles = UNIT[[0, 0, 0, 1, 12, 12, 13, 23]]
    chosen = spread(bundles, bundles[:0], 3, seed=0)
    assert [
        next(i for i, part in enumerate(((0, 1, 2, 3), (4, 5, 6), (7,))) if row in part) for row in chosen
    ] == [0, 1, 2]
    assert chosen == spread(bundles, bundles[:0], 3, seed=0)
    # What is exported counts as covered.
    assert spread(bundles, UNIT[[0, 23]], 1, seed=0)[0] in (4, 5)
    assert spread(bundles[:0], bundles, 3, seed=0) == []
    assert spread(bundles, bundles[:0], 99, seed=0) == list(range(8))


def chosen(scores, groups, vectors, number, exported=()):
    vectors = np.asarray(vectors, np.float32).reshape(len(scores), -1)
    there = ExportedTraces([[names] for names in exported], vectors[:0], ["train"] * len(exported))
    return best(scores, [[group] for group in groups], vectors, there, number=number, seed=0)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1, [1]), (3, [1, 2, 4]), (4, [1, 2, 3, 4]), (9, [0, 1, 2, 3, 4])],
)
def test_the_best_of_each_group_come_first_and_then_the_second_best(number, expected):
    """Without vectors, the names tell the groups."""
    assert chosen([0.2, 0.9, 0.5, 0.8, 0.1], ["a", "a", "b", "a", "c"], [], number) == expected


def test_groups_that_the_dataset_has_come_after_the_others():
    """As if their best one had been chosen."""
    scores, groups = [0.9, 0.8, 0.7, 0.6], ["a", "a", "b", "c"]

    assert chosen(scores, groups, [], 2, exported=["a"]) == [2, 3]
    assert chosen(scores, groups, [], 3, exported=["a"]) == [0, 2, 3]


def test_with_vectors_there_are_as_many_groups_as_traces_are_wanted():
    """Two bundles, each with its highest score at its edge; then the dataset has the second one."""
    vectors, scores = UNIT[[0, 2, 4, 12, 14, 16]], [0.1, 0.2, 0.9, 0.8, 0.3, 0.2]

    assert chosen(scores, "abcdef", vectors, 2) == [2, 3]
    exported = ExportedTraces([["x"]], UNIT[[14]], ["train"])
    assert best(scores, [[group] for group in "abcdef"], vectors, exported, number=1, seed=0) == [2]


def test_tied_traces_belong_to_one_group_whatever_their_vectors():
    scores, vectors = [0.9, 0.8, 0.7, 0.1], UNIT[[0, 12, 12, 15]]

    assert chosen(scores, ["a", "a", "a", "b"], vectors, 2) == [0, 3]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abc"), st.integers(0, 23)), max_size=12),
    st.integers(1, 15),
    st.booleans(),
)
def test_any_traces_give_as_many_as_are_wanted_or_all(rows, number, has_vectors):
    scores, groups, directions = ([row[at] for row in rows] for at in range(3))

    found = chosen(scores, groups, UNIT[directions] if has_vectors else [], number) if rows else []

    assert len({*found}) == min(number, len(rows))
    if rows:
        assert max(scores) in [scores[row] for row in found]
