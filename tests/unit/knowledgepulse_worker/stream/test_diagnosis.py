"""The verdict on the worker: which states it is in, why, and since when."""

import re
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.stream.diagnosis import Diagnosis, Observation
from knowledgepulse_worker.verdict import Finding, Severity, State
from support.clocks import Clock
from support.documents import ROOT

WELL = Observation(partitions=4, rate=10.0)
ILL = {
    "pending": ("ledgers are not recovered yet",),
    "recovering": 3,
    "coordinator_silence": 6.0,
    "leader_silence": 60.0,
    "producer_silence": 6.0,
    "transaction_age": 6.0,
    "has_foreign_member": True,
    "suspect_partitions": (2,),
    "publishing_throttled": 42.0,
    "reading_throttled": 42.0,
    "policy_refused": "policy.threshold: got 7; policy 24f1 stays in force",
    "ends": (8e9, 8e9, 8e9),
    "keys_elsewhere": "25% of the last 100 keys are not in the partition",
    "unknown_script": "85% of the letters are not Latin",
    "over_budget": "a text that fills the window takes 237 ms",
}
"""What can be wrong at once, but for the backlog and records that wait, which have to last."""


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def diagnosis(clock):
    return Diagnosis(clock, clock)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({}, "Healthy"),
        ({"leader_silence": 60.0}, "Waiting for Kafka: no answer from partition leaders for 60 s"),
        ({"coordinator_silence": 6.0}, "Waiting for Kafka: no answer from the group's coordinator for 6 s"),
        (
            {"producer_silence": 6.0},
            "Waiting for Kafka: no answer from the transaction coordinator for 6 s",
        ),
        ({"transaction_age": 6.0}, "Waiting for Kafka: a transaction has not been committed for 6 s"),
        (
            {"recovering": 3, "recovery_waits": (Wait("Fetch", "changelog/0", "", "an open transaction"),)},
            "Recovering: 3 of 4 partitions; Fetch to changelog/0: an open transaction",
        ),
        (
            {"has_foreign_member": True, "recovering": 3},
            (
                "Foreign member: a client with group.protocol=consumer is in the workers' group, and no "
                "worker scores the partitions that the brokers give it"
            ),
        ),
        (
            {"publishing_throttled": 42.4},
            (
                "Throttled: a quota of the brokers (producer_byte_rate) delays transactions, "
                "most recently by 42 s"
            ),
        ),
        (
            {"reading_throttled": 1_042.0, "leader_silence": 60.0},
            (
                "Throttled: a quota of the brokers (consumer_byte_rate) delays fetches, "
                "most recently by 1,042 s"
            ),
        ),
        (
            {"reading_throttled": 1.0, "requests_throttled": True},
            "Throttled: a quota of the brokers (request_percentage) delays fetches, most recently by 1 s",
        ),
        ({"dead_letters": 72, "outcomes": 90}, "Dead letters: 72 of the last 90 records"),
        ({"dead_letters": 9, "outcomes": 9}, "Healthy"),
        ({"dead_letters": 10, "outcomes": 200}, "Healthy"),
        ({"suspect_partitions": (2,)}, "Poison: a suspect record in partition 2 is processed alone"),
        ({"pending": ("partitions are not assigned yet",)}, "Starting: partitions are not assigned yet"),
        ({"policy_refused": "threshold: got 7"}, "Policy edit refused: threshold: got 7"),
    ],
)
def test_each_state_says_why(diagnosis, seen, text):
    assert str(diagnosis.observe(replace(WELL, **seen))) == text


def test_two_reasons_for_one_state_are_one_finding(diagnosis):
    seen = replace(
        WELL, leader_silence=6.0, transaction_age=7.0, reading_waits=(LOST,), producer_waits=(FULL,)
    )
    (waiting,) = diagnosis.observe(seen).findings

    assert str(waiting) == (
        "Waiting for Kafka: no answer from partition leaders for 6 s; a transaction has not been committed "
        f"for 7 s; {LOST}; {FULL}"
    )


JOIN = Wait("JoinGroup", "broker-1:9092", problem="no answer for 25 s")
FULL = Wait("Produce", "contribute/1", error="NOT_ENOUGH_REPLICAS (19)")
LOST = Wait("Fetch", "raw/0", error="NOT_LEADER_FOR_PARTITION (6)")
UNSTABLE = Wait("OffsetFetch", "raw/0", error="UNSTABLE_OFFSET_COMMIT (88)")


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (
            {"transaction_age": 6.0, "producer_waits": (FULL,)},
            (
                "Waiting for Kafka: a transaction has not been committed for 6 s; "
                "Produce to contribute/1: NOT_ENOUGH_REPLICAS (19)"
            ),
        ),
        (
            {"leader_silence": 60.0, "reading_waits": (LOST,)},
            (
                "Waiting for Kafka: no answer from partition leaders for 60 s; "
                "Fetch to raw/0: NOT_LEADER_FOR_PARTITION (6)"
            ),
        ),
        (
            {"recovering": 3, "member_waits": (UNSTABLE,)},
            "Recovering: 3 of 4 partitions; OffsetFetch to raw/0: UNSTABLE_OFFSET_COMMIT (88)",
        ),
        (
            {"pending": ("partitions are not assigned yet",), "member_waits": (JOIN,)},
            ("Starting: partitions are not assigned yet; JoinGroup to broker-1:9092: no answer for 25 s"),
        ),
        ({"member_waits": (JOIN,), "producer_waits": (FULL,)}, "Healthy"),
    ],
)
def test_a_wait_says_what_it_is_for(diagnosis, seen, text):
    """All waits read alike, and none told which setting of the brokers was to blame."""
    assert str(diagnosis.observe(replace(WELL, **seen))) == text


def test_a_rebalance_that_lasts_is_told(diagnosis, clock):
    seen = replace(WELL, is_rebalancing=True, member_waits=(JOIN,))
    assert diagnosis.observe(seen).state is State.HEALTHY
    clock.now += 25

    assert str(diagnosis.observe(seen)) == (
        "Waiting for Kafka: the group has been rebalancing for 25 s; "
        "JoinGroup to broker-1:9092: no answer for 25 s"
    )
    assert diagnosis.observe(WELL).state is State.HEALTHY


def test_an_open_transaction_that_holds_back_records_is_told_before_the_backlog_that_it_makes(
    diagnosis, clock
):
    """It was "Healthy" for 78 s, and then "Behind, growing", whose remedy is to start workers."""
    states = []
    for second in range(41):
        seen = replace(WELL, lag=1_000 * second, held_back={0: (17, 1_000 * second), 3: (second, 5)})
        verdict = diagnosis.observe(seen)
        states.append(verdict.state)
        clock.now += 1

    assert list(dict.fromkeys(states)) == [State.HEALTHY, State.HELD_BACK]
    assert str(verdict) == (
        "Held back: another producer's open transaction has held back 40,000 records of partition 0 for 40 s"
    )
    assert diagnosis.observe(replace(WELL, held_back={3: (50, 5)})).state is State.HEALTHY


def test_what_a_wait_is_for_is_logged_when_it_becomes_known_and_once(diagnosis, clock, caplog):
    for waits in ((), (FULL,), (FULL,)):
        clock.now += 1
        diagnosis.observe(replace(WELL, transaction_age=6.0, producer_waits=waits))

    assert [record.getMessage() for record in caplog.records] == [
        "Waiting for Kafka: a transaction has not been committed for 6 s",
        (
            "Waiting for Kafka: a transaction has not been committed for 6 s; "
            "Produce to contribute/1: NOT_ENOUGH_REPLICAS (19)"
        ),
    ]


def test_a_connection_that_fails_for_another_reason_is_logged_again(diagnosis, caplog):
    """A broker that came back with an expired certificate was told as one that is down."""
    for problem in ("Connection refused", "certificate has expired", "certificate has expired"):
        down = Wait("connection", "broker-1:9092", problem=problem)
        diagnosis.observe(replace(WELL, leader_silence=6.0, reading_waits=(down,)))

    assert [message.rpartition(": ")[2].partition(" (")[0] for message in caplog.messages] == [
        "Connection refused",
        "certificate has expired",
    ]


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ({"producer_silence": 6.0}, State.WAITING_FOR_KAFKA),
        ({"coordinator_silence": 6.0}, State.WAITING_FOR_KAFKA),
        ({"transaction_age": 6.0}, State.WAITING_FOR_KAFKA),
        ({"publishing_throttled": 42.0}, State.THROTTLED),
        ({"recovering": 3}, State.RECOVERING),
        ({"suspect_partitions": (2,)}, State.POISON),
    ],
)
def test_a_worker_that_starts_again_says_what_it_waits_for(diagnosis, seen, state):
    """After a crash, its probe said "ledgers are not recovered yet" whatever kept it from recovering them."""
    seen = replace(WELL, pending=("ledgers are not recovered yet",), **seen)

    assert diagnosis.observe(seen).state is state


def test_a_start_without_a_fault_logs_no_warning(diagnosis, caplog):
    caplog.set_level("INFO")
    for seen in ({"pending": ("ledgers are not recovered yet",), "recovering": 4}, {}):
        diagnosis.observe(replace(WELL, **seen))

    assert [(record.levelname, record.getMessage().partition(" (")[0]) for record in caplog.records] == [
        ("INFO", "Starting: over after 0 s"),
        ("INFO", "Recovering: 4 of 4 partitions"),
        ("INFO", "Recovering: over after 0 s"),
        ("INFO", "Healthy"),
    ]


def watch(diagnosis, clock, lags, rate=10.0):
    """Observe a lag each second."""
    for lag in lags:
        clock.now += 1
        verdict = diagnosis.observe(replace(WELL, lag=lag, rate=rate))
    return verdict


def test_a_burst_is_no_fault(diagnosis, clock):
    assert watch(diagnosis, clock, [12_000] * 9).state is State.HEALTHY


def test_what_the_worker_finishes_within_a_minute_is_no_backlog(diagnosis, clock):
    assert watch(diagnosis, clock, [600] * 100).state is State.HEALTHY


@pytest.mark.parametrize(
    ("lags", "text"),
    [
        (range(10_000, 10_020), "Behind: 10,019 records, growing"),
        (range(10_000, 10_200), "Behind: 10,199 records, growing for 3 min, from 10,000"),
        ([10_000] * 20, "Behind: 10,000 records, not shrinking"),
        (range(20_000, 10_000, -500), "Behind: 10,500 records, done within a minute"),
        (range(20_000, 19_000, -50), "Behind: 19,050 records, done in about 6 min"),
    ],
)
def test_a_backlog_says_where_it_goes(diagnosis, clock, lags, text):
    assert str(watch(diagnosis, clock, lags)) == text


def test_a_worker_without_outputs_is_behind_with_its_first_record(diagnosis, clock):
    assert watch(diagnosis, clock, [1] * 20, rate=0.0).state is State.BEHIND


def wait(diagnosis, clock, seconds, **seen):
    """Observe records that wait, each second."""
    for _ in range(seconds):
        clock.now += 1
        verdict = diagnosis.observe(replace(WELL, lag=3, has_unfinished=True, **seen))
    return verdict


def test_a_worker_whose_model_hangs_is_behind_long_before_a_minutes_work_waits(diagnosis, clock):
    """The rate of the last minute would hide it for most of a minute."""
    assert wait(diagnosis, clock, 5).state is State.HEALTHY
    assert str(wait(diagnosis, clock, 1)) == "Behind: 3 records, none finished for 6 s"
    assert wait(diagnosis, clock, 1, last_output=1_006.5).state is State.HEALTHY


def test_a_worker_that_had_nothing_to_do_has_not_stalled(diagnosis, clock):
    for _ in range(100):
        clock.now += 1
        diagnosis.observe(WELL)

    assert wait(diagnosis, clock, 5).state is State.HEALTHY


def test_records_that_a_transaction_holds_are_not_told_twice(diagnosis, clock):
    """They have waited for longer than their transaction, and "behind" would be logged before the cause."""
    wait(diagnosis, clock, 1)
    verdicts = [wait(diagnosis, clock, 1, transaction_age=float(age)) for age in range(1, 7)]

    assert [verdict.state for verdict in verdicts] == [State.HEALTHY] * 5 + [State.WAITING_FOR_KAFKA]


def test_one_record_is_no_records(diagnosis, clock):
    assert str(watch(diagnosis, clock, [1] * 20, rate=0.0)) == "Behind: 1 record, not shrinking"


def test_a_state_has_begun_when_it_did_whatever_its_reason_becomes(diagnosis, clock, caplog):
    caplog.set_level("INFO")
    diagnosis.observe(WELL)
    for silence in (6.0, 7.0, 8.0):
        clock.now += 1
        verdict = diagnosis.observe(replace(WELL, leader_silence=silence))
    assert verdict.findings[0].since == 1_001.0
    clock.now += 1
    diagnosis.observe(WELL)
    assert [record.getMessage() for record in caplog.records] == [
        "Starting: over after 0 s",
        "Healthy",
        "Waiting for Kafka: no answer from partition leaders for 6 s",
        "Waiting for Kafka: over after 3 s",
        "Healthy",
    ]


def test_durations_do_not_follow_a_wall_clock_that_is_set_back(clock, caplog):
    """The log would name a negative duration, and a backlog would have to last an hour to count."""
    caplog.set_level("INFO")
    wall = iter([5_000.0, *[1_400.0] * 20])
    diagnosis = Diagnosis(clock, lambda: next(wall))
    watch(diagnosis, clock, [0, *[10_000] * 12])

    assert diagnosis.verdict.state is State.BEHIND
    assert [record.getMessage() for record in caplog.records] == [
        "Starting: over after 1 s",
        "Healthy",
        "Behind: 10,000 records, growing",
    ]


@given(st.sets(st.sampled_from(sorted(ILL))))
def test_nothing_that_is_wrong_is_healthy(wrong):
    seen = replace(WELL, **{name: ILL[name] for name in wrong})

    verdict = Diagnosis().observe(seen)

    assert (verdict.states == {State.HEALTHY}) == (not wrong)
    assert all(finding.runbook is None for finding in verdict.findings) == (not wrong)


def alone(name):
    """Return the states of a fault that is alone, and of two that explain each other's states by facts."""
    return Diagnosis().observe(replace(WELL, **{name: ILL[name]})).states


EXPLAINED = {
    State.STARTING: {State.WAITING_FOR_KAFKA, State.RECOVERING, State.THROTTLED},
    State.RECOVERING: {State.WAITING_FOR_KAFKA},
}
"""The states that may be left out, and those of which they are only a consequence."""
SLOWED = {"reading_throttled": "leader_silence", "publishing_throttled": "transaction_age"}
"""Quotas, and what they explain: it is no finding of its own."""


@given(st.sets(st.sampled_from(sorted(ILL))))
def test_no_finding_hides_another_one_in_metric_probe_and_status(wrong):
    """A quota's throttling hid a foreign member, whose page never came."""
    seen = replace(WELL, **{name: ILL[name] for name in wrong})
    found = set().union(*(alone(name) for name in wrong - {SLOWED.get(name) for name in wrong}))
    expected = {state for state in found if not found & EXPLAINED.get(state, set())} or {State.HEALTHY}

    verdict = Diagnosis().observe(seen)

    metrics = Metrics(Policy(), 0.1)
    metrics.stream.set_states(verdict.states)
    states = {sample.labels["state"]: sample.value for sample in metrics.samples("kp_state")}
    assert {state for state, value in states.items() if value} == expected
    first = verdict.as_dict(None)
    shown = [first, *first["others"]]
    assert [finding["text"] for finding in shown] == [str(finding) for finding in verdict.findings]
    assert {finding["state"] for finding in shown} == expected
    ranks = [list(Severity).index(finding["severity"]) for finding in shown]
    assert ranks == sorted(ranks, reverse=True)


def test_what_the_process_before_had_found_holds_until_this_one_is_ready(clock, caplog):
    """A restart reset the delays of alerts, and the page told of neither."""
    caplog.set_level("INFO")
    former = (
        Finding(State.FOREIGN_MEMBER, "a client", 400.0),
        Finding(State.OTHER_LANGUAGES, "of code", 500.0),
    )
    diagnosis = Diagnosis(clock, clock, former)
    starting = replace(WELL, pending=("ledgers are not recovered yet",), has_foreign_member=True)
    shown = [diagnosis.verdict, diagnosis.observe(starting)]
    clock.now += 5
    ready = diagnosis.observe(replace(starting, pending=()))

    for verdict in shown:
        assert verdict.states == {State.FOREIGN_MEMBER, State.STARTING, State.OTHER_LANGUAGES}
    assert {finding.state: finding.since for finding in ready.findings} == {State.FOREIGN_MEMBER: 400.0}
    assert caplog.messages == ["Starting: over after 5 s", "Other languages: over after 505 s"]


def test_what_ended_the_process_before_is_told_until_this_one_is_ready(diagnosis):
    """The page named the last error for half a second, and then only what was not recovered yet."""
    verdict = diagnosis.observe(replace(WELL, pending=("not yet",), last_end="it was killed"))

    assert str(verdict) == "Starting: not yet; it was killed"
    assert str(diagnosis.observe(replace(WELL, last_end="it was killed"))) == "Healthy"


def test_partitions_that_wait_for_brokers_for_long_before_they_are_read_are_no_ordinary_start(
    diagnosis, clock
):
    """After a crash, brokers take some seconds to abort what the former owner left open."""
    verdicts = []
    for seen in ({"recovering": 1}, {"pending": ("partitions are not assigned yet",)}):
        for _ in range(2):
            verdicts.append(diagnosis.observe(replace(WELL, member_waits=(UNSTABLE,), **seen)))
            clock.now += 31
        diagnosis.observe(WELL)

    assert list(map(str, verdicts)) == [
        f"Recovering: 1 of 4 partitions; {UNSTABLE}",
        f"Waiting for Kafka: 1 of 4 partitions not recovered; {UNSTABLE}",
        f"Starting: partitions are not assigned yet; {UNSTABLE}",
        f"Waiting for Kafka: partitions are not assigned yet; {UNSTABLE}",
    ]


def test_each_cause_is_known_to_these_tests():
    assert {field.name for field in fields(Observation)} == {
        *ILL,
        *("partitions", "recovery_waits", "requests_throttled", "dead_letters", "outcomes", "lag", "rate"),
        *("has_unfinished", "last_output", "last_end"),
        *("is_rebalancing", "held_back", "member_waits", "reading_waits", "producer_waits"),
    }


def test_whoever_waits_for_brokers_has_the_runbook_of_the_alert_on_waits():
    """A partition that recovers and waits paged with KpWaiting, and its probe named KpRecoveryLong."""
    recovering = replace(WELL, recovering=1, partitions=2)
    waiting = replace(recovering, member_waits=(UNSTABLE,))

    verdicts = [Diagnosis().observe(seen) for seen in (recovering, waiting)]

    assert {verdict.state for verdict in verdicts} == {State.RECOVERING}
    assert [verdict.as_dict(None)["runbook"] for verdict in verdicts] == ["recovering", "KpWaiting"]


def test_the_runbook_has_each_section():
    (runbook,) = ROOT.glob("d*/**/runbook.md")
    sections = {state.runbook for state in State} - {None}
    assert sections <= set(re.findall(r"^## (\w+)$", runbook.read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    ("ago", "said"),
    [
        ((), "Healthy"),
        ((10,), "Healthy"),
        ((1000, 10), "Healthy"),
        ((2000, 1000, 10), "Healthy"),
        ((2000, 1000, 800, 10), "Restarting: 3 restarts in the last 30 minutes; the last one: it was killed"),
    ],
)
def test_a_process_that_ends_again_and_again_is_not_healthy_in_between(ago, said):
    """Three kills in 45 seconds were told nowhere."""
    diagnosis = Diagnosis(wall_clock=lambda: 5_000.0)
    ends = tuple(5_000.0 - seconds for seconds in ago)

    assert str(diagnosis.observe(Observation(ends=ends, last_end="it was killed"))) == said
