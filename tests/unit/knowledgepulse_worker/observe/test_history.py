"""What the status page shows of finished records outlives the process that finished them."""

import os
from dataclasses import replace

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_worker.observe import history, recent
from knowledgepulse_worker.observe.history import HistoryFile
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.recent import PublishedTrace, Recent
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.observe.status import Status
from knowledgepulse_worker.policy import Policy, PolicyInForce
from knowledgepulse_worker.process.descriptors import anonymous_file
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.verdict import Verdict
from support.clocks import Clock
from support.scored import scored_record

POLICY = Policy(threshold=0.5, domains={"code": {"share": 0.25}})
HOSTILE = "SECRET<script>\ud800\x00\u202e" + "x" * 5000


@pytest.fixture
def descriptor():
    descriptor = anonymous_file()
    yield descriptor
    os.close(descriptor)


def finish(recent, text="kp:trace:1", counts=None):
    """Report a published trace and a dead letter, in the same way as a lane."""
    record = replace(scored_record(text, "code", threshold=0.75), counts=counts)
    recent.scored(0.05)
    recent.finished({record.score.decision: 1, "dead_letter": 1}, [0.2, 0.3])
    recent.published([PublishedTrace(record.score, record.score.decision, text, text, "another domain")])
    recent.detailed(record, POLICY, text)
    recent.letters["code"].append((3, 4))
    failure = Failure("not_json", "InvalidRecordError", text)
    recent.dead_lettered("raw/2/7", score=record.score, failure=failure, trace_id=text, objective=text)
    recent.skipped(3, range(7, 9), "deleted")
    recent.truncated(3, range(7, 9))


def next_process(descriptor):
    """Return the recent events of a process that begins with those of the file."""
    mine = Recent()
    if (kept := HistoryFile(descriptor).read()) is not None:
        mine.continue_from(kept)
    return mine


def shown(recent):
    """Return the status page's data, but for what is of the process, and of the present moment."""
    metrics = Metrics(POLICY, 0.1, CollectorRegistry())
    metrics.recent = recent
    shadow = ShadowComparison(PolicyInForce(POLICY))
    data = Status(metrics, Settings(), shadow, lambda: Verdict.of(())).data(content=True)
    return {
        name: getattr(data, name)
        for name in data.__struct_fields__
        if name not in {"at", "up_seconds", "before_restart", "worker"}
    }


@pytest.mark.parametrize("text", ["kp:trace:1", HOSTILE])
def test_the_next_process_shows_what_the_one_before_showed(descriptor, monkeypatch, text):
    """A restart emptied "Dead letters, last 15 min" at once, and with its first record all else."""
    monkeypatch.setattr(recent.time, "monotonic", Clock())
    before = Recent()
    finish(before, text)
    HistoryFile(descriptor).write(before)

    after = next_process(descriptor)

    assert shown(after) == shown(before)
    assert (after.letters, after.outcomes()) == (before.letters, before.outcomes())
    assert after.outcomes() == {"rejected": 1, "dead_letter": 1}
    assert before.before_restart is None
    assert after.before_restart is not None


def test_later_records_join_those_before(descriptor):
    before = Recent()
    finish(before)
    HistoryFile(descriptor).write(before)
    after = next_process(descriptor)

    finish(after, "kp:trace:2")

    assert [trace.record.id for trace in after.traces["rejected"]] == ["kp:trace:1", "kp:trace:2"]
    assert after.traces["rejected"][0].policy == POLICY
    assert (after.totals, len(after.scores)) == ({"rejected": 2, "dead_letter": 2}, 2)
    assert after.before_restart is None


def test_a_process_that_finishes_nothing_hands_on_what_it_was_given(descriptor):
    """A crash loop forgot what came before it."""
    before = Recent()
    finish(before)
    HistoryFile(descriptor).write(before)
    between = next_process(descriptor)
    HistoryFile(descriptor).write(between)

    assert shown(next_process(descriptor)) == shown(between)


def test_a_trace_whose_words_cannot_be_written_leaves_the_rest(descriptor, make_counts):
    counts = msgspec.structs.replace(make_counts(), words="\ud800")
    finish(before := Recent(), counts=counts)

    HistoryFile(descriptor).write(before)

    after = next_process(descriptor)
    assert (len(after.traces["rejected"]), after.totals, len(after.dead_letters)) == (0, before.totals, 1)


@pytest.mark.parametrize("length", [0, 5, 500])
def test_a_file_that_was_not_written_to_its_end_is_no_history(descriptor, length):
    finish(before := Recent())
    HistoryFile(descriptor).write(before)
    os.truncate(descriptor, length)

    assert HistoryFile(descriptor).read() is None


def test_the_history_of_another_release_is_no_history(descriptor, monkeypatch, caplog):
    """A package may be upgraded while the supervisor runs on."""
    before = Recent()
    monkeypatch.setattr(before, "history", dict)
    HistoryFile(descriptor).write(before)

    assert HistoryFile(descriptor).read() is None
    (message,) = caplog.messages
    assert message.startswith("recent events of the process before cannot be read: ")


def test_nothing_is_written_without_new_events(descriptor, monkeypatch):
    finish(before := Recent())
    file = HistoryFile(descriptor)
    file.write(before)
    monkeypatch.setattr(history.os, "pwrite", None)

    file.write(before)
    finish(before)
    with pytest.raises(TypeError):
        file.write(before)
