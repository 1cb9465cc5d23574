"""What is sent: only what the registry's schema knows, nothing private, and why it was contributed."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_curator.contributions.knowledge_unit import KnowledgeUnit, unit_of
from knowledgepulse_curator.export.candidates import Rules
from knowledgepulse_curator.export.manifest import Choices
from knowledgepulse_worker.policy import PRIVACY_LEVELS, VISIBILITIES, Policy
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.redaction.sdk import clean
from knowledgepulse_worker.scoring import score_trace
from knowledgepulse_worker.settings import RegistrySettings
from knowledgepulse_worker.tools.common.scored_records import read_scored_record
from support.planted import PLANTED, planted_traces

REGISTRY = RegistrySettings(url="http://localhost:1", agent_id="team@example.com")


CHOICES = Choices(
    also=(),
    domain=(),
    min_score=0,
    policy=None,
    visibilities=VISIBILITIES,
    privacy_levels=PRIVACY_LEVELS,
    best=None,
    seed=0,
    shares=(10, 10),
    embedder="none",
    redacted=False,
    not_cleaned=False,
    scan_secrets=False,
)
EXPORT = Rules(CHOICES, Policy(), {}, since_ms=None, embedder=None, text="sdk", has_score=True, scan=None)
GUARDED = Policy(
    threshold=0,
    contribute_visibility=["org", "network"],
    contribute_privacy_level=["aggregated", "federated"],
)


def unit(record, registry=REGISTRY):
    return unit_of(record.value, read_scored_record(record), registry)


def export(record):
    """Return what is exported of a record, or why nothing is."""
    record.timestamp_ms = 1
    return EXPORT.candidate(record)


def test_only_the_schemas_members_are_sent_and_who_decided(document, record):
    trace = document(validated_by=["kp:validator:me"], native_id="n", created_at="2026-01-31 12:00+01:00")
    trace |= {"free": 1, "@context": "https://knowledgepulse.dev/schema/v1"}
    trace["steps"][0]["tool_call_id"] = "c"
    trace["task"] |= {"system": "You are ours.", "tools": [{"name": "shell"}]}
    trace["metadata"] |= {"models": ["m"], "span_context": {"trace_id": "0" * 32, "span_id": "0" * 16}}
    trace["knowledge_graph_delta"] = {"relationships": [{"fact": "f", "valid_from": "v", "free": 1}]}

    sent = json.loads(unit(record(trace)).body)

    assert sent["@context"] == "https://openknowledgepulse.org/schema/v1"
    assert sent["metadata"] == {
        **{name: trace["metadata"][name] for name in ("task_domain", "success", "quality_score")},
        "created_at": "2026-01-31T11:00:00Z", "agent_id": "team@example.com", "visibility": "network",
        "privacy_level": "aggregated",
    }  # fmt: skip
    assert sent["task"].keys() <= {"objective", "input_schema"}
    assert sent["steps"] == [
        {"step_id": 0, "type": "tool_call", "tool": {"name": "wc"}, "input": {"n": 2**70}}
    ]
    assert "free" not in sent
    graph = sent["knowledge_graph_delta"]
    assert graph["entities"] == []
    facts = [relationship["fact"].partition(" ") for relationship in graph["relationships"]]
    assert [name for name, _, _ in facts] == ["f", "kp-score", "kp-policy", "kp-release"]
    assert json.loads(facts[1][2])["nearest"] == "kp:trace:0c83f1cd-0000-4000-8000-000000000000"
    assert facts[2][2] == "0123456789ab"
    assert unit(record(trace)) == unit(record(trace))


def test_what_is_said_of_the_score_is_cleaned_too(document, record):
    """Of a nearest trace, only an id that says nothing is told."""
    assert b"alice" not in unit(record(document(), nearest="kp:trace:alice@example.com")).body
    assert unit(record(document(), domain="alice@example.com")) == "not_clean"
    shown = export(record(document(), nearest="kp:trace:alice@example.com"))
    assert shown.parts.nearest is None


def spelled(draw, text):
    """Return a JSON string that says the same, some of its characters escaped."""
    return (
        '"'
        + "".join(f"\\u{ord(character):04x}" if draw(st.booleans()) else character for character in text)
        + '"'
    )


@given(data=st.data())
def test_a_private_trace_never_leaves_in_whatever_spelling(document, record, data):
    name, other = data.draw(st.permutations(["visibility", "privacy_level"]))
    open_value = {"visibility": "network", "privacy_level": "aggregated"}
    members = [
        (name, open_value[name])
        if data.draw(st.booleans())
        else None,  # a duplicate, which the last one outdoes
        (name, "private"),
        (other, data.draw(st.sampled_from(["private", open_value[other]]))),
    ]
    metadata = {key: value for key, value in document()["metadata"].items() if key not in open_value}
    parts = [json.dumps(key) + ":" + json.dumps(value) for key, value in metadata.items()]
    parts += [
        f"{spelled(data.draw, member[0])} : {spelled(data.draw, member[1])}" for member in members if member
    ]
    trace = document()
    trace["metadata"] = "METADATA"
    value = json.dumps(trace).replace('"METADATA"', "{" + ",".join(parts) + "}").encode()
    registry = RegistrySettings(
        url="http://localhost:1",
        agent_id="a",
        visibilities=["org", "network"],
        require_clean=data.draw(st.booleans()),
    )

    assert unit(record(value), registry) in GUARDED.guards
    assert export(record(value)).reason in GUARDED.guards
    score = score_trace(decode_trace(value, len(value)), None, GUARDED)
    assert (score.decision, score.withheld in GUARDED.guards) == ("rejected", True)


def test_a_private_visibility_cannot_be_allowed():
    with pytest.raises(ValueError, match="'org' or 'network'"):
        RegistrySettings(visibilities=["private"])


@given(trace=planted_traces())
def test_nothing_planted_in_any_text_is_sent(record, trace):
    registry = REGISTRY.model_copy(update={"agent_id": "a"})
    assert unit(record(trace), registry) == "not_clean"

    sent = unit(record(clean(copy.deepcopy(trace))), registry)

    assert isinstance(sent, KnowledgeUnit)
    text = json.dumps(json.loads(sent.body), ensure_ascii=False).replace("\\\\", "\\")
    assert not [secret for secret in PLANTED if secret in text]
