"""The audit accepts everything that a worker does, and detects all tampering."""

import json
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from knowledgepulse_kafka.records import Fault
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.ledger_records import Entry, Failure, decode_entry
from knowledgepulse_worker.tools.audit.audit_report import Difference
from support.audited import counts, score_of, with_headers, with_score

HISTORY = st.lists(
    st.one_of(
        st.tuples(st.just("traces"), st.integers(1, 6)),
        st.tuples(st.just("bad"), st.sampled_from([b"no json", b"[]", b"", None])),
        st.tuples(st.just("crash"), st.integers(1, 6)),
    ),
    min_size=1,
    max_size=8,
)


def lived(stream, history):
    """Run a stream of valid and invalid records, with crashes that repeat the last records."""
    made = stream()
    for what, value in history:
        if what == "crash":
            made.restart()
            made.work(since=max(0, made.committed - value))
        elif what == "traces":
            made.publish(value)
        else:
            made.publish(value=value)
        made.work()
    return made


@given(HISTORY)
@settings(max_examples=40)
def test_accepts_every_history_of_a_worker(stream, history):
    made = lived(stream, history)

    report = made.audit()

    assert counts(report).keys() <= {"repeated"}
    assert report.records == len(made.raw)
    assert report.outputs == len(made.outputs) == len(made.raw) + report.repeated
    assert report.novelty_exact == len({e.offset for e in made.entries.values() if e.score})


def trimmed(made, first):
    """Delete the records before an offset, like retention."""
    made.raw = [record for record in made.raw if record.offset >= first]
    return made


@pytest.mark.parametrize("worked_on", [True, False], ids=["and it went on", "and it has yet to"])
def test_reports_offsets_deleted_before_they_were_read(worked, worked_on):
    made = worked(10)
    for offset in (15, 16, 17):
        made.publish(offset=offset)
    trimmed(made, 15)
    if worked_on:
        made.work()

    assert made.audit(first=15).deleted == [(10, 14)]


def test_reports_unknown_deleted_offsets_from_the_groups_position_on(stream):
    made = stream()
    made.publish(20)
    trimmed(made, 15)

    assert made.audit(first=15, committed=12).deleted == [(12, 14)]
    assert made.audit(first=15, committed=0).deleted == [], "a new group starts at the beginning of the topic"


def flip(data, value):
    """Change one byte of a value outside of the score to another letter."""
    place = data.draw(st.sampled_from([i for i, byte in enumerate(value) if chr(byte).isalpha()]))
    return value[:place] + (b"x" if value[place] != ord("x") else b"y") + value[place + 1 :]


TAMPER = {
    "a changed byte": lambda data, output: replace(output, value=flip(data, output.value)),
    "no value": lambda data, output: replace(output, value=None),
    "another key": lambda data, output: replace(output, key=b"else"),
    "another time": lambda data, output: replace(output, timestamp_ms=output.timestamp_ms + 1),
    "a header less": lambda data, output: replace(output, headers=output.headers[1:]),
    "a header more": lambda data, output: replace(output, headers=(("x", b""), *output.headers)),
    "headers in another order": lambda data, output: replace(
        output, headers=(output.headers[1], output.headers[0], *output.headers[2:])
    ),
    "an empty header for a null": lambda data, output: replace(
        output, headers=tuple((name, value or b"") for name, value in output.headers)
    ),
    "another partition": lambda data, output: replace(output, partition=0),
    "the other route": lambda data, output: replace(
        output, topic="rejected" if output.topic == "contribute" else "contribute"
    ),
    "another policy": lambda data, output: with_headers(output, kp_policy=b"000000000000"),
    "a score that is none": lambda data, output: with_headers(output, kp_score=b'{"score": NaN}'),
}


@pytest.mark.parametrize("how", TAMPER)
@given(data=st.data())
@settings(max_examples=15)
def test_detects_any_tampering_at_its_offset(worked, how, data):
    made = worked(12)
    offset = data.draw(st.integers(0, 11))
    made.outputs[offset] = TAMPER[how](data, made.outputs[offset])

    report = made.audit()

    assert [difference.offset for difference in report.differing] == [offset]
    assert report.missing == []


@pytest.mark.parametrize(
    "member", ["score", "complexity", "novelty", "tool_diversity", "outcome_confidence", "threshold"]
)
@pytest.mark.parametrize("with_ledger", [True, False])
def test_detects_a_wrong_number_with_and_without_ledger_entries(worked, member, with_ledger):
    made = worked(12)
    off = score_of(made.outputs[7])
    # As the worker would have published it, had it computed so.
    tampered = with_score(made.outputs[7], **{member: off[member] - 1e-6})
    value = json.loads(tampered.value)
    value["metadata"]["quality_score"] = score_of(tampered)["score"]
    made.outputs[7] = tampered
    if not with_ledger:
        made.changelog.clear()

    report = made.audit(embedder=None if with_ledger else made.embedder, tolerance=1e-7)

    assert [difference.offset for difference in report.differing] == [7]
    assert f"{member} is " in report.differing[0].what


@pytest.mark.parametrize(("member", "value"), [("domain", "else"), ("overrides", ["recovered"])])
def test_recomputes_the_other_parts_of_the_score(worked, member, value):
    made = worked(6)
    made.outputs[2] = with_score(made.outputs[2], **{member: value})
    made.changelog.clear()

    assert made.audit().differing == [Difference(2, f"{member} differs from the recomputed value")]


GUARDED = {"threshold": 0, "contribute_visibility": ["org"]}


def test_recomputes_the_decision_under_the_guard_of_each_records_own_policy(stream):
    """The traces' visibility is `network`, and only the second policy withholds them."""
    made = stream(policy={"threshold": 0})
    made.kept_policies = [Policy.model_validate(GUARDED)]
    made.publish(3)
    made.work()
    made.publish(3)
    made.work(policy=made.kept_policies[0])

    assert [output.topic for output in made.outputs] == ["contribute"] * 3 + ["rejected"] * 3
    assert counts(made.audit()) == {}


@pytest.mark.parametrize("has_words", [False, True])
def test_recomputes_the_learned_value_of_each_records_own_policy(stream, has_words):
    """A share of a half; the first records were scored before the policy had it."""
    term = {"mean": 1, "deviation": 1, "weight": -0.5, "clip": 3}
    learned = {"share": 0.5, "facts_version": 1, "intercept": 0.2, "terms": {"steps": term, "novelty": term}}
    if has_words:
        learned["words"] = {"unit": 0.001, "mean": 0.01, "weights": b64encode(bytes(range(256)) * 4).decode()}
    policy = Policy.model_validate({"domains": {name: {"learned": learned} for name in ("default", "code")}})
    made = stream()
    made.kept_policies = [policy]
    made.publish(3)
    made.work()
    made.publish(3)
    made.work(policy=policy)

    assert ["learned" in score_of(output) for output in made.outputs] == [False] * 3 + [True] * 3
    assert counts(made.audit()) == {}

    last = made.outputs[-1]
    made.outputs[-1] = with_score(last, learned=score_of(last)["learned"] / 2)
    assert counts(made.audit())["differing"]


@pytest.mark.parametrize("topic", ["contribute", "rejected"])
@pytest.mark.parametrize("keeps_reason", [True, False])
def test_detects_a_trace_that_should_have_been_withheld(worked, topic, keeps_reason):
    made = worked(3, policy=GUARDED)
    output = replace(made.outputs[1], topic=topic)
    made.outputs[1] = output if keeps_reason else with_score(output, withheld=None)
    made.changelog.clear()

    differing = made.audit().differing

    assert [record.offset for record in differing] == (
        [] if (topic, keeps_reason) == ("rejected", True) else [1]
    )


def test_detects_a_scored_record_that_is_not_a_trace(stream):
    made = stream()
    made.publish(value=b"[]")
    made.publish(3)
    made.work()
    own = made.outputs[1].headers[-3:]
    source = ("kp-source", b"raw-traces/1/0")
    dead, _ = made.outputs[0], made.changelog.clear()
    made.outputs[0] = replace(dead, topic="rejected", headers=(*made.raw[0].headers, source, *own[1:]))

    assert made.audit().differing == [Difference(0, "value does not match the record")]


@pytest.mark.parametrize("with_ledger", [True, False])
def test_a_record_rejected_as_too_large_still_entered_the_cache(worked, with_ledger):
    made = worked(10)
    made.bury(3, "too_large", "TooLargeError", cut=True)
    if not with_ledger:
        made.changelog.clear()

    assert not made.audit(embedder=made.embedder).differing

    made.outputs[3] = replace(made.outputs[3], value=made.outputs[3].value[:-1])
    assert made.audit(embedder=made.embedder).differing == [Difference(3, "value does not match the record")]


def test_a_record_whose_scoring_failed_does_not_enter_the_cache(worked):
    made = worked(4)
    made.publish(6)
    made.fail(4)
    made.work()

    assert counts(made.audit(embedder=made.embedder)) == {}


def test_a_deleted_output_is_missing_once_its_record_is_committed(worked):
    made = worked(10)
    del made.outputs[6], made.outputs[3]

    assert counts(made.audit()) == {"missing": [3, 6]}
    assert counts(made.audit(committed=5)) == {"missing": [3], "waiting": 1}
    assert counts(made.audit(outputs_from=4)) == {"missing": [6], "outputs_trimmed": 1}


def test_counts_a_former_release_s_equal_repeats_and_reports_all_others(worked):
    made = worked(6)
    made.outputs += [made.outputs[4], made.outputs[4]]
    assert counts(made.audit()) == {"repeated": 2}
    assert counts(made.audit(in_transactions=True)) == {"repeated": 2, "repeats": [4]}

    made.outputs.append(with_headers(made.outputs[4], kp_policy=b"else"))

    report = made.audit()
    assert (report.repeated, report.repeats) == (3, [4])
    assert [difference.offset for difference in report.differing] == [4]
    assert "repeats differ in headers" in report.differing[0].what


def test_detects_a_wrong_dead_letter_reason(stream):
    made = stream()
    made.publish(value=b"no json")
    made.work()
    made.outputs[0] = with_headers(made.outputs[0], kp_reason=b"invalid_trace")
    made.changelog.clear()

    assert made.audit().differing == [Difference(0, "kp-reason is invalid_trace, expected not_json")]


def test_detects_a_wrong_nearest_trace(worked):
    made = worked(6)
    ids = [f"kp:trace:{number}" for number in range(6)]
    nearest = score_of(made.outputs[5])["nearest"]
    made.changelog.pop()
    for other, what in [
        (next(trace_id for trace_id in ids[1:5] if trace_id != nearest), "another trace is nearer"),
        (ids[0], "not a trace in the cache"),
        (None, "nearest is null"),
    ]:
        made.outputs[5] = with_score(made.outputs[5], nearest=other)
        report = made.audit(embedder=made.embedder)
        assert [difference.offset for difference in report.differing] == [5]
        assert what in report.differing[0].what


def test_checks_the_dimensions_of_records_of_a_policy_that_was_not_kept(worked):
    made = worked(6)
    old = Policy(threshold=0.9)
    made.publish(3)
    made.work(policy=old)

    assert counts(made.audit()) == {"unknown_policy": 3}

    made.changelog.clear()
    made.outputs[7] = with_score(made.outputs[7], threshold=0.0)
    made.outputs[8] = with_score(made.outputs[8], complexity=0.99)

    assert [d.offset for d in made.audit().differing] == [7, 8]


@pytest.mark.parametrize("reason", ["undecodable", "too_large"])
def test_an_unreadable_record_is_a_dead_letter_without_content(stream, reason):
    """Even if it can be read now, because `limits.batch_bytes` was raised since."""
    made = stream()
    made.publish(3)
    readable = made.raw[1]
    fault = Fault(reason, "the batch up to 1")
    made.raw[1] = replace(readable, key=None, value=None, headers=(), fault=fault)
    failure = Failure(reason, "InvalidRecordError", fault.message)
    made.restart()
    made.entries[1] = Entry(1, readable.timestamp_ms, failure=failure)
    made.work()

    assert not made.audit().differing

    made.raw[1] = readable
    assert not made.audit().differing


# --- outputs without ledger entries


def without_entries(made, *offsets):
    """Take entries out of the changelog, with what was written over them."""
    made.changelog = [value for value in made.changelog if decode_entry(value).offset not in offsets]


def test_only_the_entries_that_the_ledger_must_hold_are_required(stream):
    """Those of the last scored records: compaction takes away the others."""
    made = stream()
    made.publish(10)
    made.publish(value=b"no JSON")
    made.publish(9)
    made.work()
    without_entries(made, *range(10))
    assert made.audit().without_entry == []

    without_entries(made, 18)

    assert made.audit().without_entry == [18]


def test_what_is_published_but_not_committed_may_lack_its_entry(worked):
    """Its group was reset to an earlier offset, so that the entries were cut."""
    made = worked(20)

    without_entries(made, 18)

    assert made.audit(committed=18).without_entry == []
