"""The file that a labelling session writes."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from knowledgepulse_curator.labelling import label_session
from knowledgepulse_curator.labelling.label_session import LabelSession, ToLabel, open_labels
from knowledgepulse_curator.labelling.traces_to_label import text_view, traces_to_label
from knowledgepulse_curator.labels.labelled_inputs import LabelledInputs
from knowledgepulse_curator.labels.labels import Label, labels_of_files
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import content, task_of
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.scored_records import score_json
from knowledgepulse_worker.tools.score.offline import make_scorer, score_line

LINE = '{"id":"kp:trace:%d","keep":true,"source":"ann"}\n'


@pytest.mark.parametrize(
    ("before", "removed", "after"),
    [
        ("", "", ""),
        (LINE % 0, "", LINE % 0),
        ((LINE % 0).strip(), "", LINE % 0),  # by an editor
        (LINE % 0 + '{"id":"kp:tr', '{"id":"kp:tr', LINE % 0),  # by a kill
        (LINE % 0 + '{"id":"kp:trace:1","keep":tr\u202e', '{"id":"kp:trace:1","keep":tr\\u202e', LINE % 0),
    ],
)
def test_a_file_is_continued_after_its_last_whole_label(tmp_path, before, removed, after):
    path = tmp_path / "labels.jsonl"
    path.write_text(before, encoding="utf-8")

    with open_labels(path) as file:
        assert file.removed == removed
        file.append(Label("kp:trace:9", keep=True, source="ann"))
        assert path.read_text() == after + LINE % 9
        file.remove_last()

    assert path.read_text() == after


@pytest.mark.parametrize("text", [f"{LINE % 0}no label\n{LINE % 1}", f"{LINE % 0}the end of my notes"])
def test_a_file_of_another_program_is_refused_and_unchanged(tmp_path, text):
    path = tmp_path / "labels.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=r"labels.jsonl:2: not a label"):
        open_labels(path).__enter__()
    assert path.read_text() == text


def test_errors_name_the_file(tmp_path):
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        open_labels(tmp_path).__enter__()
    other = tmp_path / "other"
    with open_labels(other), pytest.raises(InputError, match="by another `kp-worker policy label`"):
        open_labels(other).__enter__()


def test_a_full_disk_is_told_and_the_trace_stays(tmp_path, make_record, monkeypatch):
    with open_labels(tmp_path / "labels.jsonl") as file:
        session = LabelSession([ToLabel(make_record(), b"{}")], file, "ann")
        monkeypatch.setattr(label_session.os, "fsync", Mock(side_effect=OSError(28, "No space left")))
        with pytest.raises(InputError, match="No space left"):
            session.decide("keep")
        monkeypatch.undo()
        assert session.current is not None
        assert (tmp_path / "labels.jsonl").read_text() == ""
        session.decide("keep")
    assert (tmp_path / "labels.jsonl").read_text() == LINE % 1


def test_a_session_continues_after_the_labellers_last_label_then_with_the_skipped(tmp_path, make_record):
    traces = [ToLabel(make_record(id=f"kp:trace:{n}"), b"{}") for n in range(5)]
    (tmp_path / "labels.jsonl").write_text(
        LINE % 0 + LINE % 2 + LINE % 77 + (LINE % 3).replace("ann", "ben")  # 1 was skipped
    )
    with open_labels(tmp_path / "labels.jsonl") as file:
        session = LabelSession(traces, file, "ann")
        assert session.counts == {True: 2}
        seen = []
        while session.current:
            seen.append(session.current.record.id)
            session.decide("drop")
    assert seen == ["kp:trace:3", "kp:trace:4", "kp:trace:1"]
    assert session.counts == {True: 2, False: 3}


def test_a_scored_line_is_shown_as_far_as_it_was_kept(tmp_path, real_traces):
    scorer = make_scorer(Settings(), None)
    scored = score_line(real_traces[0], scorer, Settings(), embedder="none")
    (tmp_path / "scored.jsonl").write_text(score_json(scored))
    given = LabelledInputs((tmp_path / "scored.jsonl",))

    (trace,) = traces_to_label(given, {}, Policy(), 5)
    view, whole = text_view(None, trace.record.content), text_view(real_traces[0], None)

    assert trace.value is None
    assert view["objective"] == whole["objective"]
    assert [step["type"] for step in view["steps"][:3]] == [step["type"] for step in whole["steps"][:3]]
    assert view["steps"][0].keys() == whole["steps"][0].keys()


def test_a_label_names_the_task_that_other_traces_share(tmp_path, make_record):
    """Labels without groups made values look good that had only learned which tasks go well."""
    traces = [
        ToLabel(make_record(id="kp:trace:0", content=content("a", [], "", None)), b"{}", ("kp:trace:9",)),
        ToLabel(make_record(id="kp:trace:1", content=content("b", [], "", None)), b"{}"),
    ]
    with open_labels(tmp_path / "labels.jsonl") as file:
        session = LabelSession(traces, file, "ann")
        session.decide("keep")
        session.decide("drop")

    groups = [label.group for label in labels_of_files([tmp_path / "labels.jsonl"])]
    assert groups == [f"task {task_of('a')}", None]


def test_a_skipped_trace_has_a_label_that_the_next_session_and_undo_replace(tmp_path, make_record):
    traces = [ToLabel(make_record(id="kp:trace:0"), b"{}", sampling="random")]
    path = tmp_path / "labels.jsonl"
    with open_labels(path) as file:
        session = LabelSession(traces, file, "ann")
        session.decide("skip")
    (written,) = path.read_text().splitlines()
    assert '"sampling":"random","skipped":true' in written
    with open_labels(path) as file:
        session = LabelSession(traces, file, "ann")
        assert session.current is traces[0]
        session.decide("skip")
        session.undo()
        assert path.read_text().splitlines() == [written]
