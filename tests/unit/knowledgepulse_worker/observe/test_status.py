"""The data of ``/api/status``."""

import json
import os
import time
from dataclasses import replace

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_schemas.dead_letter import REASONS
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.recent import PublishedTrace
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.observe.status import LISTED_AGENTS, Status
from knowledgepulse_worker.policy import Policy, PolicyInForce
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.settings import FleetSettings, Settings, WebSettings
from knowledgepulse_worker.verdict import Finding, State, Verdict
from support.scored import scored_record

STARTING = Verdict((Finding(State.STARTING),))
HOSTILE = "SECRET<script>alert(1)</script>\ud800\x00\u202e" + "x" * 5000


@pytest.fixture
def metrics():
    metrics = Metrics(Policy(), 0.1, CollectorRegistry())
    metrics.stream.set_build_info("0", "a model", "float32", "cpu")
    return metrics


@pytest.fixture
def shadow():
    return ShadowComparison(PolicyInForce(Policy()))


@pytest.fixture
def status(metrics, shadow):
    return Status(metrics, Settings(), shadow, lambda: STARTING)


def finished(metrics, outcome="rejected", *, text="kp:trace:1", end_to_end=0.2):
    """Report a finished record in the same way as a lane."""
    for counted in (metrics.traces, metrics.recent):
        counted.finished({outcome: 1}, [end_to_end])
    if outcome == "dead_letter":
        metrics.traces.dead_lettered({REASONS[0]: 1})
        metrics.recent.dead_lettered(
            "raw/2/7",
            score=Score(0.4, 0.5, 0.25, 0.5, 0.5, (), "default", 0.75, text),
            failure=Failure(REASONS[0], "InvalidRecordError", text),
            trace_id=text,
            objective=text,
        )
    else:
        decided(metrics, text=text, threshold=0.75 if outcome == "rejected" else 0.5)


def decided(
    metrics,
    *,
    text="kp:trace:1",
    threshold=0.75,
    agent_id=None,
    framework=None,
    domain="code",
    shadow=None,
):
    """Report a decision in the same way as a lane."""
    record = scored_record(text, domain, threshold=threshold)
    for counted in (metrics.traces, metrics.recent):
        counted.published([PublishedTrace(record.score, record.score.decision, agent_id, framework, domain)])
    if shadow is not None:
        shadow.add(record)
    metrics.recent.detailed(record, Policy(), text)


def data_of(status, *, content=True):
    return json.loads(status.to_json(content=content))


def test_an_idle_worker_has_a_status(status):
    data = data_of(status)

    assert data["outcomes"]["total"] == {"contribute": 0, "rejected": 0, "dead_letter": 0}
    assert data["latency"]["scoring"] == {"count": 0, "p50": None, "p95": None, "p99": None, "over_budget": 0}
    assert data["partitions"]["owned"] == []
    assert data["contributed"] == data["rejected"] == data["dead_letters"] == []
    assert set(data["scores"]["domains"]) == set(Policy().profiles)


OUTCOMES = ("contribute", "rejected", "dead_letter")
LISTS = ("contributed", "rejected", "dead_letters")


def test_without_content_the_status_reveals_nothing_from_producers(metrics, status):
    for outcome in OUTCOMES:
        finished(metrics, outcome, text=HOSTILE)
    decided(metrics, domain=HOSTILE)

    assert status.to_json(content=True).count(b"SECRET") == 3 + 3 + 4 + 2
    assert b"SECRET" not in status.to_json(content=False)
    *traces, dead = (data_of(status, content=False)[name][-1] for name in LISTS)
    for trace in traces:
        hidden = (trace["trace_id"], trace["objective"], trace["task_domain"], trace["score"]["nearest"])
        assert hidden == (None, None, None, None)
    assert (dead["trace_id"], dead["objective"], dead["message"]) == (None, None, None)


def test_the_rest_of_the_status_is_shown_to_everybody(metrics, status):
    for outcome in OUTCOMES:
        finished(metrics, outcome)
    metrics.recent.truncated(3, range(10, 20))
    metrics.recent.skipped(1, range(7, 9), "passed_over")

    shown, hidden = data_of(status, content=True), data_of(status, content=False)
    (found,) = hidden["truncations"]
    assert (found["partition"], found["first"], found["offsets"]) == (3, 10, 10)
    (found,) = hidden["skips"]
    assert (found["partition"], found["first"], found["offsets"], found["reason"]) == (1, 7, 2, "passed_over")
    *traces, dead = (hidden[name][0] for name in LISTS)
    for trace in traces:
        assert (trace["source"], trace["score"]["score"], trace["score"]["novelty"]) == (
            "raw/2/7",
            0.625,
            0.25,
        )
        assert trace["similarity"] == "0.7500"
    assert (dead["source"], dead["reason"], dead["exception"]) == (
        "raw/2/7",
        REASONS[0],
        "InvalidRecordError",
    )
    for key in ("truncations", "skips", "worker", "scores", "latency", "partitions", "in_flight"):
        assert shown[key] == hidden[key]
    for key in ("policy", "effects", "explanation"):
        assert shown["rejected"][0][key] == hidden["rejected"][0][key]


@pytest.mark.parametrize("content", [True, False])
def test_no_text_breaks_or_inflates_the_json(metrics, status, shadow, content):
    shadow.in_force.shadow = Policy(threshold=0)
    for number in range(50):
        for outcome in OUTCOMES:
            finished(metrics, outcome, text=HOSTILE)
        decided(
            metrics,
            text=HOSTILE,
            agent_id=f"{number} {HOSTILE}",
            framework=HOSTILE,
            domain=HOSTILE,
            shadow=shadow,
        )

    body = status.to_json(content=content)

    body.decode()
    assert len(body) < 120_000


def test_the_fleet_lists_the_most_frequent_names_and_folds_the_others(metrics, status):
    for number in range(LISTED_AGENTS + 5):
        for _ in range(number + 1):
            decided(metrics, agent_id=f"agent {number}", threshold=0.5 if number % 2 else 0.75)
    decided(metrics, framework="langgraph")

    fleet = data_of(status)["fleet"]

    assert fleet["agents"]["named"] == [
        {"name": f"agent {number}", "traces": number + 1, "contributed": (number + 1) * (number % 2)}
        for number in range(LISTED_AGENTS + 4, 4, -1)
    ]
    assert fleet["agents"]["other"] == {"traces": 1 + 2 + 3 + 4 + 5 + 1, "contributed": 2 + 4}
    assert [framework["name"] for framework in fleet["frameworks"]["named"]] == [None, "langgraph"]
    assert fleet["frameworks"]["other"] == {"traces": 0, "contributed": 0}


def test_without_content_the_fleet_lists_only_names_from_the_settings(metrics, shadow):
    settings = Settings(fleet=FleetSettings(agent_ids=("planner",)))
    status = Status(metrics, settings, shadow, lambda: STARTING)
    shadow.in_force.shadow = Policy(threshold=0)
    for agent_id in ("planner", HOSTILE, HOSTILE, None):
        decided(metrics, agent_id=agent_id, framework=HOSTILE, text=HOSTILE, shadow=shadow)

    assert b"SECRET" in status.to_json(content=True)
    assert b"SECRET" not in status.to_json(content=False)
    fleet = data_of(status, content=False)["fleet"]
    assert {agent["name"]: agent["traces"] for agent in fleet["agents"]["named"]} == {"planner": 1, None: 1}
    assert fleet["agents"]["other"]["traces"] == 2
    assert fleet["frameworks"] == {"named": [], "other": {"traces": 4, "contributed": 0}}
    assert data_of(status, content=False)["shadow"]["flips"][0]["id"] is None


SHADOW = (
    '{"policy":"…","traces":1,"rescored":0,"routes":{"code":{"contribute → contribute":0,"contribute → '
    'rejected":0,"rejected → contribute":1,"rejected → rejected":0}},"flips":[{"id":"kp:trace:1","source":'
    '"raw/2/7","domain":"code","dimensions":{"complexity":0.5,"novelty":0.25,"tool_diversity":1.0,'
    '"outcome_confidence":0.75},"score":{"before":0.625,"after":0.625},"threshold":{"before":0.75,"after":0.0}'
    ',"decision":{"before":"rejected","after":"contribute"}}],"rules":{"code":{"policy":{"threshold":0.75},'
    '"shadow":{"threshold":0.0}}}}'
)
LETTER = (
    '[{"source":"raw/2/7","at":9.5,"trace_id":"kp:1","objective":"kp:1","score":{"score":0.4,"complexity":0.5,'
    '"novelty":0.25,"tool_diversity":0.5,"outcome_confidence":0.5,"overrides":[],"domain":"default",'
    '"threshold":0.75,"nearest":"kp:1","withheld":null,"learned":null,"share":null,"rank":null,"of":null},'
    '"reason":"…","exception":"InvalidRecordError","message":"kp:1"}]'
)
VERDICT = (
    '{"state":"held_back","severity":"serious","text":"Held back: why","since":3.5,"runbook":"held_back",'
    '"runbook_url":"https://example.com/r#held_back","others":[]}'
)
EVALUATION = (
    '{"at":1.0,"policy":"0af1","domains":[{"name":"code","labels":3,"since":null,"auc":[0.1,0.2,0.3]}],'
    '"promises":[]}'
)


def test_scripts_that_read_the_data_find_what_they_have_found(metrics, shadow, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 9.5)
    file = tmp_path / "evaluation.json"
    file.write_text(
        '{"policy": "0af1", "domains": {"code": {"traces": 3, "fair": [0.1, 0.2, 0.3]}}, "fitted": {}}'
    )
    os.utime(file, (1, 1))
    web = WebSettings(evaluation=file, runbook="https://example.com/r")
    status = Status(
        metrics, Settings(web=web), shadow, lambda: Verdict((Finding(State.HELD_BACK, "why", 3.5),))
    )
    shadow.in_force.shadow = Policy(threshold=0)
    decided(metrics, shadow=shadow)
    finished(metrics, "dead_letter", text="kp:1")

    body = status.to_json(content=True).decode()

    parts = {
        "shadow": SHADOW.replace("…", shadow.in_force.shadow.digest),
        "dead_letters": LETTER.replace("…", REASONS[0]),
        "verdict": VERDICT,
        "evaluation": EVALUATION,
    }
    assert [name for name, part in parts.items() if f'"{name}":{part}' not in body] == []


def test_counts_times_over_the_budget(metrics, status):
    for milliseconds in range(1, 201):
        metrics.recent.scored(milliseconds / 1000)

    scoring = data_of(status)["latency"]["scoring"]

    assert scoring["over_budget"] == 100
    assert [round(scoring[q], 3) for q in ("p50", "p95", "p99")] == [0.101, 0.19, 0.198]


def test_partitions_reflect_the_current_metrics(metrics, status):
    metrics.on_scrape(lambda: metrics.stream.lag(10, 5))
    metrics.lanes.cache_size(10, 30)
    metrics.stream.recovering(2, 7)
    metrics.lanes.committed(10, 1_700_000_000.5)

    assert data_of(status)["partitions"]["owned"] == [
        {"partition": 2, "lag": None, "vectors": None, "recovering": 7, "last_commit": None},
        {"partition": 10, "lag": 5, "vectors": 30, "recovering": None, "last_commit": 1_700_000_000.5},
    ]


def test_a_share_is_shown_with_the_lowest_score_that_passes_now(status, metrics, shadow):
    shadow.in_force.policy = Policy(share=0.1)
    shadow.in_force.shadow = Policy(threshold=0.6)
    metrics.set_policy(shadow.in_force.policy)
    ranked = {"share": 0.1, "rank": 3, "of": 50, "threshold": 0.4}
    record = scored_record(policy=Policy(share=0.1))
    record = replace(record, score=msgspec.structs.replace(record.score, **ranked))
    trace = PublishedTrace(record.score, record.score.decision, None, None, record.task_domain)
    metrics.policy.decided([trace])
    metrics.recent.published([trace])
    shadow.add(record)

    data = data_of(status)

    code = data["scores"]["domains"]["code"]
    assert code == {"threshold": 0.4, "share": 0.1, "values": [0.625], "passes": [True]}
    assert data["scores"]["domains"]["default"]["threshold"] == 0.75
    assert data["shadow"]["rules"] == {"code": {"policy": {"share": 0.1}, "shadow": {"threshold": 0.6}}}


def test_a_reload_to_a_threshold_ends_the_share(status, metrics):
    metrics.set_policy(Policy(share=0.1))
    metrics.set_policy(Policy(threshold=0.6))

    assert {domain["share"] for domain in data_of(status)["scores"]["domains"].values()} == {None}


def test_task_domains_without_a_profile_are_counted_and_the_most_frequent_named(status, metrics):
    for name in ("legal", "legal", "ops"):
        decided(metrics, domain=name)

    assert data_of(status)["unprofiled"] == {
        "traces": 3,
        "named": [{"name": "legal", "traces": 2}, {"name": "ops", "traces": 1}],
    }
    assert data_of(status, content=False)["unprofiled"] == {"traces": 3, "named": []}


def test_the_status_tells_the_transactions_and_what_they_waited_for(metrics, status, monkeypatch):
    now = time.monotonic()
    for waited_for in ("interval", "output", "interval"):
        metrics.transaction(waited_for)
    monkeypatch.setattr(time, "monotonic", lambda: now + 2)

    assert data_of(status)["transactions"] == {"per_second": 1.5, "waited_for": {"interval": 2, "output": 1}}

    monkeypatch.setattr(time, "monotonic", lambda: now + 100)
    assert data_of(status)["transactions"] == {"per_second": 0, "waited_for": {}}
