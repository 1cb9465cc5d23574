"""The audit accepts everything that a worker does, and detects all tampering."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.entry import Entry, Failure
from knowledgepulse_worker.records.outputs import with_current_timestamp
from knowledgepulse_worker.records.record import UNREAD_FINGERPRINT, Fault
from knowledgepulse_worker.tools.audit.report import Difference

NOW_MS = 1_800_000_000_000


def score_of(output):
    return json.loads(dict(output.headers)["kp-score"])


def with_headers(output, **changed):
    """Return an output with some of the worker's headers replaced."""
    new = {name.replace("_", "-"): value for name, value in changed.items()}
    return replace(output, headers=tuple((name, new.get(name, value)) for name, value in output.headers))


def with_score(output, **changed):
    """Return an output with some fields of its kp-score replaced."""
    return with_headers(output, kp_score=json.dumps(score_of(output) | changed).encode())


def counts(report):
    """Return the defects and oddities in a report."""
    return {
        name: value
        for name, value in vars(report).items()
        if value and name not in ("partition", "records", "outputs", "novelty_exact")
    }


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


@pytest.mark.parametrize("refused", [-5, 2**63 - 2])
def test_accepts_outputs_that_could_not_keep_their_records_timestamp(stream, refused):
    """They are published twice, at different times."""
    made = stream()
    made.publish(4)
    made.raw[2] = replace(made.raw[2], timestamp_ms=refused)
    made.work()
    made.work(since=0)
    made.outputs = [
        replace(with_current_timestamp(output), timestamp_ms=NOW_MS + place) if place % 4 == 2 else output
        for place, output in enumerate(made.outputs)
    ]

    assert counts(made.audit()) == {"repeated": 4}


def test_detects_a_wrong_timestamp_header(worked):
    made = worked(1)
    (output,) = made.outputs
    made.outputs = [replace(with_current_timestamp(replace(output, timestamp_ms=5)), timestamp_ms=17)]

    assert len(counts(made.audit())["differing"]) == 1


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


def test_does_not_report_offsets_deleted_after_publication(worked):
    made = worked(20)

    assert trimmed(made, 15).audit(first=15).deleted == []


def test_reports_unknown_deleted_offsets_from_the_groups_position_on(stream):
    made = stream()
    made.publish(20)
    trimmed(made, 15)

    assert made.audit(first=15, committed=12).deleted == [(12, 14)]
    assert made.audit(first=15, committed=0).deleted == [], "a new group starts at the beginning of the topic"


def test_does_not_report_offsets_whose_outputs_may_have_been_trimmed(worked):
    made = worked(20)
    made.outputs = made.outputs[8:]
    made.changelog = [(key, value) for key, value in made.changelog if int(key) >= 8]

    assert trimmed(made, 15).audit(first=15, outputs_from=8).deleted == []


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


@pytest.mark.parametrize(("member", "value"), [("domain", "else"), ("overrides", ["else"])])
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


@pytest.mark.parametrize("topic", ["contribute", "rejected"])
@pytest.mark.parametrize("keeps_reason", [True, False])
def test_detects_a_trace_that_should_have_been_withheld(worked, topic, keeps_reason):
    made = worked(3, policy=GUARDED)
    output = replace(made.outputs[1], topic=topic)
    made.outputs[1] = output if keeps_reason else with_score(output, withheld=None)
    made.changelog.clear()

    differing = made.audit().differing

    assert [one.offset for one in differing] == ([] if (topic, keeps_reason) == ("rejected", True) else [1])


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


@pytest.mark.parametrize("published", [True, False])
def test_a_record_whose_scoring_failed_does_not_enter_the_cache(worked, published):
    made = worked(4)
    made.publish(6)
    made.fail(4)
    made.work()
    if not published:
        del made.outputs[4]

    assert counts(made.audit(embedder=made.embedder)) == ({} if published else {"missing": [4]})


def test_ignores_entries_that_no_output_was_published_from(worked, noisy):
    """A paused worker resumes and writes an entry for a record that its successor has published."""
    made = worked(10, embedder=noisy(1e-3))
    late = msgspec.structs.replace(
        made.entries[6], vector=made.entries[2].vector, score=made.entries[2].score
    )
    made.changelog.append((b"6", msgspec.msgpack.encode(late)))

    assert counts(made.audit()) == {}


def test_ignores_vectors_of_another_length(stream, worked):
    made = worked(10)
    made.settings = stream(cache={"dimensions": 16}).settings

    assert counts(made.audit()) == {"novelty_unaudited": {"no_vector": 9}}


def test_a_deleted_output_is_missing_once_its_record_is_committed(worked):
    made = worked(10)
    del made.outputs[6], made.outputs[3]

    assert counts(made.audit()) == {"missing": [3, 6]}
    assert counts(made.audit(committed=5)) == {"missing": [3], "waiting": 1}
    assert counts(made.audit(outputs_from=4)) == {"missing": [6], "outputs_trimmed": 1}


def test_counts_equal_repeats_and_reports_unequal_ones(worked):
    made = worked(6)
    made.outputs += [made.outputs[4], made.outputs[4]]
    assert counts(made.audit()) == {"repeated": 2}

    made.outputs.append(with_headers(made.outputs[4], kp_policy=b"else"))

    report = made.audit()
    assert report.repeated == 3
    assert [difference.offset for difference in report.differing] == [4]
    assert "repeats differ in headers" in report.differing[0].what


def test_a_record_cannot_be_both_scored_and_a_dead_letter(stream):
    made = stream()
    made.publish(value=b"no json")
    made.publish(1)
    made.work()
    dead, scored = made.outputs
    own = ("__streams", "kp-reason")
    headers = tuple((n, b"1" if n.endswith(".offset") else v) for n, v in dead.headers if n.startswith(own))
    made.outputs.append(
        replace(scored, topic="dead-letter", value=made.raw[1].value, headers=made.raw[1].headers + headers)
    )

    report = made.audit()

    assert [difference.offset for difference in report.differing] == [1]
    assert "repeats differ in topic" in report.differing[0].what
    assert "the record is a trace" in report.differing[0].what


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
        (next(one for one in ids[1:5] if one != nearest), "another trace is nearer"),
        (ids[0], "not a trace in the cache"),
        (None, "nearest is null"),
    ]:
        made.outputs[5] = with_score(made.outputs[5], nearest=other)
        report = made.audit(embedder=made.embedder)
        assert [difference.offset for difference in report.differing] == [5]
        assert what in report.differing[0].what


def test_the_nearest_traces_id_may_be_truncated(stream):
    made = stream()
    made.publish(6, seed="x" * 300)
    made.work()

    assert any(len(score_of(output)["nearest"] or "") == 200 for output in made.outputs)
    assert made.audit().differing == []


def test_recomputes_every_record_under_the_policy_that_it_names(worked):
    made = worked(6)
    old = Policy(threshold=0.9)
    made.publish(3)
    made.work(policy=old)
    made.kept_policies = [old]

    assert counts(made.audit()) == {}

    made.outputs[7] = with_score(made.outputs[7], threshold=0.75)

    assert [d.offset for d in made.audit().differing] == [7]


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


def test_accepts_embedding_noise_within_the_tolerance(worked, noisy):
    made = worked(30, embedder=noisy(1e-4))
    made.changelog = made.changelog[20:]

    assert made.audit(embedder=noisy(1e-4)).differing
    report = made.audit(embedder=noisy(1e-4), tolerance=1e-3)
    assert not report.differing
    # The first has nothing before it; the last six are compared with vectors that are all in the ledger.
    assert (report.novelty_exact, report.novelty_embedded) == (1 + 6, 23)


def test_bfloat16_widens_the_tolerance(worked, noisy):
    made = worked(30, embedder=noisy(3e-4, precision="bfloat16"))
    made.changelog.clear()

    assert not made.audit(embedder=noisy(3e-4, precision="bfloat16")).differing
    assert made.audit(embedder=noisy(3e-4)).differing


def test_the_tolerance_does_not_apply_to_the_ledgers_vectors(worked, noisy):
    made = worked(9, embedder=noisy(1e-3))
    novelty = score_of(made.outputs[8])["novelty"]
    made.outputs[8] = with_score(made.outputs[8], novelty=novelty + 1e-8)

    assert [d.offset for d in made.audit(tolerance=1.0).differing] == [8]


def test_reports_decisions_that_an_embedding_cannot_confirm(worked):
    made = worked(9)
    made.changelog.clear()
    near = [
        record.offset
        for record, output in zip(made.raw, made.outputs, strict=True)
        if record.offset and abs(score_of(output)["score"] - 0.45) <= 0.1
    ]
    assert 0 < len(near) < 8

    assert made.audit(embedder=made.embedder, tolerance=0.1).near_threshold == near


def test_without_an_embedder_novelty_is_unaudited_while_a_vector_is_missing(worked):
    made = worked(12)
    del made.changelog[3]

    # The record itself, and the four that were compared with it.
    assert counts(made.audit()) == {"novelty_unaudited": {"no_vector": 5}}
    assert counts(made.audit(embedder=made.embedder)) == {"novelty_embedded": 5}


def test_novelty_after_a_trimmed_start_is_unaudited(worked):
    made = worked(20)
    made.raw, made.outputs, made.changelog = made.raw[10:], made.outputs[10:], made.changelog[10:]

    report = made.audit(first=10, embedder=made.embedder)

    assert counts(report) == {"novelty_unaudited": {"trimmed": 4}}
    assert report.novelty_exact == 6


def test_compacted_records_are_still_in_the_cache(worked):
    made = worked(20)
    del made.raw[7]

    assert counts(made.audit()) == {"unknown": 1}
    del made.changelog[7]
    assert counts(made.audit(embedder=made.embedder)) == {"unknown": 1, "novelty_unaudited": {"no_vector": 4}}


@pytest.mark.parametrize("before", [5, 3 * 8])
def test_outputs_from_before_the_topic_was_recreated_are_unknown(stream, before):
    made = stream()
    made.publish(before)
    made.work()
    made.raw.clear()
    made.entries.clear()
    made.committed = 0
    made.restart(cut=True)
    made.publish(6, seed="new ")
    made.work()

    report = made.audit()

    assert counts(report) == {"unknown": before}
    assert report.novelty_exact == 6

    made.changelog = made.changelog[:before]  # of what was there before only
    report = made.audit(embedder=made.embedder)
    assert not report.differing
    assert report.novelty_embedded == 5


def test_scores_after_a_rewind_may_differ(worked, noisy):
    """Its scores may differ from those of the first run, which had the whole cache."""
    made = worked(24, embedder=noisy(1e-3))
    made.restart(cut=True)
    made.work(since=10)

    report = made.audit()

    assert report.rescored == report.repeated == 14
    assert not report.differing
    assert report.novelty_exact == 10
    assert report.novelty_unaudited == {"rewind": 14}

    made.publish(6)
    made.work()
    assert made.audit().novelty_exact == 16
    made.outputs[-1] = replace(made.outputs[-1], value=b"{}")
    assert [d.offset for d in made.audit().differing] == [29]


def test_another_model_starts_with_an_empty_cache(worked, noisy):
    made = worked(10)
    made.restart(noisy(0, identity="second"))
    made.publish(10)
    made.work()

    assert score_of(made.outputs[10])["nearest"] is None
    assert counts(made.audit()) == {}

    made.changelog = made.changelog[5:]
    # Those without an entry are taken to be of the model of the oldest entry.
    report = made.audit(embedder=noisy(0, identity="second"))
    assert counts(report) == {"novelty_unaudited": {"other_model": 8}}


@pytest.mark.parametrize(("text", "differing"), [("agent", False), ("sdk", True)])
def test_novelty_is_recomputed_from_the_text_that_the_settings_choose(worked, text, differing):
    made = worked(10, embedding={"text": "agent"})
    made.changelog.clear()
    embedding = made.settings.embedding.model_copy(update={"text": text})
    made.settings = made.settings.model_copy(update={"embedding": embedding})

    report = made.audit(embedder=made.embedder)

    assert report.novelty_embedded == 9
    assert bool(report.differing) == differing


def test_without_an_embedding_novelty_is_unaudited(worked):
    made = worked(10, embedding={"backend": "none"})
    assert counts(made.audit()) == {}
    made.changelog.clear()
    assert counts(made.audit()) == {}

    made.outputs[4] = with_score(made.outputs[4], novelty=0.6)

    assert [d.offset for d in made.audit().differing] == [4]


def test_the_ttl_applies_to_record_timestamps(stream):
    made = stream(cache={"ttl": 2.0})
    made.publish(8)
    made.raw = [replace(r, timestamp_ms=r.timestamp_ms - 1500 * (r.offset % 3)) for r in made.raw]
    made.work()
    assert counts(made.audit()) == {}
    made.settings = made.settings.model_copy(
        update={"cache": made.settings.cache.model_copy(update={"ttl": None})}
    )
    assert made.audit().differing


@pytest.mark.parametrize("reason", ["undecodable", "too_large"])
def test_an_unreadable_record_is_a_dead_letter_without_content(stream, reason):
    """Even if it can be read now, because `limits.batch_bytes` was raised since."""
    made = stream()
    made.publish(3)
    readable = made.raw[1]
    fault = Fault(reason, "the batch up to 1")
    made.raw[1] = replace(readable, key=None, value=None, headers=(), fault=fault)
    failure = Failure(reason, "RejectedRecord", fault.message)
    made.restart()
    made.entries[1] = Entry(1, readable.timestamp_ms, UNREAD_FINGERPRINT, failure=failure)
    made.changelog.append((b"1", msgspec.msgpack.encode(made.entries[1])))
    made.work()

    assert not made.audit().differing

    made.raw[1] = readable
    assert not made.audit().differing


# --- outputs without ledger entries


def without_entries(made, *offsets):
    """Take entries out of the changelog, with what was written over them."""
    keys = {b"%d" % offset for offset in offsets}
    made.changelog = [(key, value) for key, value in made.changelog if key not in keys]


@pytest.mark.parametrize("value", [None, b"no JSON"], ids=["scored", "dead letter"])
def test_an_output_without_an_entry_is_found_in_a_changelog_that_was_never_compacted(stream, value):
    made = stream()
    made.publish(3)
    made.publish(value=value)
    made.publish(20)
    made.work()
    assert made.audit(compacted=False).without_entry == []

    without_entries(made, 3)

    assert made.audit(compacted=False).without_entry == [3]


def test_in_a_compacted_changelog_only_what_the_ring_must_hold_is_required(stream):
    """The last scored records: compaction takes away what fell out, dead letters among them."""
    made = stream()
    made.publish(10)
    made.publish(value=b"no JSON")
    made.publish(9)
    made.work()
    without_entries(made, *range(10), 10)
    assert made.audit().without_entry == []

    without_entries(made, 18)

    assert made.audit().without_entry == [18]


def test_what_is_published_but_not_committed_may_lack_its_entry_in_a_compacted_changelog(worked):
    """Its group was reset to an earlier offset, so that the entries were cut."""
    made = worked(20)

    without_entries(made, 18)

    assert made.audit(committed=18).without_entry == []
