"""One table has the routes, and one module decides between them."""

import ast

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.observe.status import Status
from knowledgepulse_worker.policy import CONTRIBUTE, REJECTED, ROUTES, Policy, PolicyInForce, Route
from knowledgepulse_worker.records.score_header import decode_score, encode_score
from knowledgepulse_worker.scoring import Score, Scorer, VectorCache, decide, score_trace
from knowledgepulse_worker.scoring.routing import passes, withheld
from knowledgepulse_worker.settings import Settings, TopicSettings
from knowledgepulse_worker.verdict import Finding, State, Verdict
from support.documents import ROOT

REVIEW = Route("review", topic="evaluations", kept=False, participle="reviewed")

MAY_NAME_A_ROUTE = {
    "policy/routes.py": "the table",
    "settings/models.py": "the default names of the topics",
    "export/candidates.py": "a reason for leaving a record out has the same name",
}


@pytest.fixture
def third(monkeypatch):
    """Add a route to the table."""
    monkeypatch.setitem(ROUTES, REVIEW.name, REVIEW)


def scored(quality=0.5, **members):
    return Score(quality, 0.5, 0.5, 0.5, 0.5, (), "default", 0.5, None, **members)


@pytest.mark.parametrize(
    ("score", "route"),
    [
        (scored(0.5), CONTRIBUTE),
        (scored(0.49), REJECTED),
        (scored(0.49, share=0.2, rank=2, of=10), CONTRIBUTE),
        (scored(0.99, share=0.2, rank=3, of=10), REJECTED),
        (scored(0.5, share=0.2, of=2), CONTRIBUTE),
        (scored(0.99, withheld="novelty"), REJECTED),
    ],
)
def test_a_header_alone_tells_the_route(score, route):
    read = decode_score(encode_score(score))

    assert decide(read) is route
    assert (read.decision, passes(read)) == (route.name, route.kept or score.withheld is not None)


def test_a_guard_comes_before_a_minimum_and_novelty_before_the_score(make_trace):
    metadata = make_trace("tool_call", visibility="org").metadata
    near = msgspec.structs.replace(scored(0.9), novelty=0.1)
    minimums = {"min_novelty": 0.5, "min_score": 1}

    assert withheld(near, metadata, Policy(contribute_visibility=["network"], **minimums)) == "visibility"
    assert withheld(near, metadata, Policy(**minimums)) == "novelty"
    assert withheld(scored(0.9), metadata, Policy(**minimums)) == "score"
    assert withheld(near, metadata, Policy()) is None


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("failed", "ending"),
        ("cut_off", "ending"),
        ("answered", None),
        (None, None),
        (["failed"], None),
        ({}, None),
    ],
)
def test_an_ending_that_the_policy_names_is_withheld_and_one_that_is_not_told_is_not(
    make_trace, ending, reason
):
    policy = Policy(threshold=0, withhold_endings=["cut_off", "failed"])

    score = score_trace(make_trace("tool_call", ending=ending), None, policy)

    assert (score.withheld, score.decision) == (reason, "rejected" if reason else "contribute")


def test_a_trace_that_is_withheld_for_its_ending_is_not_ranked_and_later_ones_are_compared_with_it(
    make_trace,
):
    policy = Policy(share=0.5, share_window=30, withhold_endings=["failed"])
    scorer = Scorer(lambda _: [1.0, 0.0], policy, VectorCache(dimensions=2))
    failed, answered = (
        scorer.evaluate(make_trace("tool_call", ending=ending)) for ending in ("failed", "answered")
    )

    assert (failed.withheld, failed.rank, failed.of) == ("ending", None, None)
    assert (answered.withheld, answered.of, answered.novelty) == (None, 1, 0.0)


def test_only_the_table_names_a_route():
    """Whoever adds a route finds all that depends on it by the table."""
    named = {
        f"{path.parent.name}/{path.name}"
        for path in (ROOT / "worker").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in ROUTES
    }
    assert named == {*MAY_NAME_A_ROUTE}


def test_each_route_has_a_topic_of_its_own():
    topics = TopicSettings()
    assert topics.scored == tuple(topics.of(route) for route in ROUTES.values())
    assert len({*topics.outputs}) == len(ROUTES) + 1


@pytest.mark.usefixtures("third")
def test_a_third_route_has_its_topic_its_metrics_and_its_list_on_the_status_page():
    registry = CollectorRegistry()
    metrics = Metrics(Policy(), 0.1, registry)
    metrics.stream.set_build_info("0", "a model", "float32", "cpu")
    shadow = ShadowComparison(PolicyInForce(Policy()))
    status = Status(metrics, Settings(), shadow, lambda: Verdict((Finding(State.STARTING),)))

    assert TopicSettings().scored == ("contribute", "rejected", "otlp_logs")
    assert status.data(content=True).members()["reviewed"] == []
    assert b'kp_agent_traces_total{agent_id="other",outcome="review"} 0.0' in generate_latest(registry)
