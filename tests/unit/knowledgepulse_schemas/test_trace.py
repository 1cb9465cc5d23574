"""Validation of raw traces: the model and the published JSON Schema agree."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from knowledgepulse_schemas import ReasoningTrace, ScoredTrace
from knowledgepulse_schemas.trace import ENDINGS, ending_of, rewards_of, task_id_of
from support.schema_cases import ACCEPTED, MISSING, REFUSED, changed


def refusals(document: dict[str, Any]) -> list[ValidationError]:
    """Return the model's errors, validating both Python data and JSON."""
    errors = []
    for validate, value in (
        (ReasoningTrace.model_validate, document),
        (ReasoningTrace.model_validate_json, json.dumps(document)),
    ):
        try:
            validate(value)
        except ValidationError as error:
            errors.append(error)
    return errors


@pytest.mark.parametrize(("path", "value"), ACCEPTED)
def test_accepts_what_the_schema_allows(full_document, published, path, value):
    document = changed(full_document(), path, value)

    assert refusals(document) == []
    assert published.is_valid(document)


@pytest.mark.parametrize(("path", "value"), REFUSED)
def test_rejects_a_violation_and_names_the_member(full_document, published, path, value):
    document = changed(full_document(), path, value)

    in_python, in_json = refusals(document)

    for error in (in_python, in_json):
        location = "/".join(map(str, error.errors()[0]["loc"]))
        assert location.startswith(path)
    assert not published.is_valid(document)


@pytest.mark.parametrize("confidence", [float("nan"), float("inf")])
def test_rejects_a_non_finite_confidence(full_document, confidence):
    assert len(refusals(changed(full_document(), "outcome/confidence", confidence))) == 2


@pytest.mark.parametrize(
    "created_at",
    [
        *("2026-01-31T12:00:00Z", "2026-01-31t12:00:00.123456789z", "2026-01-31T12:00:00+05:30"),
        *("2026-01-31T12:00:00,5-0800", "2026-01-31 12:00:00", "2026-01-31T12:00", "2024-02-29T23:59:59Z"),
    ],
)
def test_accepts_iso_8601_date_times_and_keeps_their_text(full_document, created_at):
    document = changed(full_document(), "metadata/created_at", created_at)

    assert refusals(document) == []
    assert ReasoningTrace.model_validate(document).metadata.created_at == created_at


@pytest.mark.parametrize(
    "created_at",
    [
        *("", "yesterday", "2026-01-31", "12:00:00Z", "20260131T120000Z", "2026-W05-6T12:00:00Z"),
        *("2026-02-29T12:00:00Z", "2026-01-31T25:00:00Z", "2026-01-31T12:60:00Z", "2026-01-31T12:00:00Z\n"),
        *(" 2026-01-31T12:00:00Z", "2026-01-31T12:00:00 Z", "2026-01-31T12:00:00+25:00"),
        "\u0662\u0660\u0662\u0666-01-31T12:00:00Z",
    ],
)
def test_rejects_what_is_not_an_iso_8601_date_time(full_document, created_at):
    assert len(refusals(changed(full_document(), "metadata/created_at", created_at))) == 2


@pytest.mark.parametrize("name", ["@context", "@type"])
def test_rejects_python_attribute_names_in_place_of_aliases(full_document, name):
    """Otherwise, traces that the published schema rejects would be scored."""
    document = full_document()
    document[name.removeprefix("@")] = document.pop(name)

    assert len(refusals(document)) == 2


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(sorted({path for path, _ in ACCEPTED + REFUSED} - {"metadata/created_at"})), JSON_VALUES
)
def test_model_and_published_schema_reject_the_same_documents(full_document, published, path, value):
    assume(not (isinstance(value, float) and value.is_integer()))  # 1.0 is an integer to JSON Schema only
    document = changed(full_document(), path, value)

    assert published.is_valid(document) == (refusals(document) == [])


def objects_within(value: Any) -> list[dict[str, Any]]:
    """Return every object described by the schema; ``input`` and ``input_schema`` are free-form."""
    if isinstance(value, list):
        return [found for item in value for found in objects_within(item)]
    if not isinstance(value, dict):
        return []
    own = {"input", "input_schema"}
    return [value, *objects_within([member for name, member in value.items() if name not in own])]


@settings(max_examples=30)
@given(st.data())
def test_unknown_fields_are_kept_at_every_level(full_document, published, data):
    document = full_document()
    for level in objects_within(document):
        level["x-" + data.draw(st.text(max_size=5))] = data.draw(JSON_VALUES.filter(lambda x: x is not None))

    written = ReasoningTrace.model_validate_json(json.dumps(document)).to_json()

    assert json.loads(written) == document
    assert published.is_valid(document)


def test_an_unknown_field_that_is_null_is_kept(full_document):
    """An explicit null may carry meaning."""
    document = full_document() | {"x-reviewed": None}

    assert json.loads(ReasoningTrace.model_validate(document).to_json()) == document


@pytest.mark.parametrize("name", ["context", "type", "model_dump", "model_config", "__class__"])
def test_an_unknown_field_may_have_any_name(full_document, name):
    document = full_document() | {name: "kept"}

    assert json.loads(ReasoningTrace.model_validate(document).to_json()) == document


def test_unset_fields_are_not_serialised():
    trace = new_trace()

    assert json.loads(trace.to_json()) == {
        "@context": "https://openknowledgepulse.org/schema/v1",
        "@type": "ReasoningTrace",
        "id": trace.id,
        "metadata": {
            "created_at": trace.metadata.created_at,
            "task_domain": "code",
            "success": True,
            "visibility": "private",
            "privacy_level": "private",
        },
        "task": {"objective": "Fix the build"},
        "steps": [{"step_id": 0, "type": "thought"}, {"step_id": 1, "type": "observation"}],
        "outcome": {"result_summary": "It is green", "confidence": 0.9},
    }


def new_trace(**changes: Any) -> ReasoningTrace:
    arguments: dict[str, Any] = {
        "objective": "Fix the build",
        "steps": [{"type": "thought"}, {"type": "observation"}],
        "result_summary": "It is green",
        "confidence": 0.9,
        "success": True,
        "task_domain": "code",
    }
    return ReasoningTrace.new(**arguments | changes)


def test_a_new_trace_is_valid_under_the_published_schema(published):
    published.validate(json.loads(new_trace(agent_id="kp:agent:1", visibility="org").to_json()))


def test_new_traces_have_unique_ids_and_a_utc_time():
    before = datetime.now(UTC).replace(microsecond=0)
    first, second = new_trace(), new_trace()

    assert first.id != second.id
    assert before <= datetime.fromisoformat(first.metadata.created_at) <= datetime.now(UTC)
    assert first.metadata.created_at.endswith("Z")


def test_arguments_of_new_override_its_defaults():
    trace = new_trace(
        steps=[{"step_id": 5, "type": "thought"}], visibility="private", created_at="2026-01-31T12:00:00Z"
    )

    assert trace.steps[0].step_id == 5
    assert trace.metadata.visibility == "private"
    assert trace.metadata.created_at == "2026-01-31T12:00:00Z"


def test_every_real_trace_is_valid_under_the_model_and_the_published_schema(real_traces, published):
    assert len(real_traces) == 154
    for line in real_traces:
        document = json.loads(line)
        published.validate(document)
        assert json.loads(ReasoningTrace.model_validate_json(line).to_json()) == document


@pytest.mark.parametrize("value", ["gave_up", "Answered", "", 1, True, None, ["answered"], {"answered": 1}])
def test_only_the_four_endings_tell_how_a_run_ended(value):
    assert [ending_of(ending) for ending in ENDINGS] == ["answered", "submitted", "failed", "cut_off"]
    assert ending_of(value) is None


def test_rewards_are_finite_numbers_with_a_name_and_all_else_is_ignored():
    good = [{"name": "tests", "value": 1, "weight": 2}, {"name": "style", "value": -0.5}]
    others = [{"name": 1, "value": 1}, {"value": 1}, 1, None, {"name": "x"}]
    bad = [True, "1", None, math.nan, math.inf, 10**400]
    assert rewards_of([*good, *others]) == {"tests": 1.0, "style": -0.5}
    assert rewards_of([{"name": "x", "value": value} for value in bad]) == {}
    assert rewards_of({"tests": 1}) == rewards_of(None) == rewards_of("1") == {}
    assert [*map(task_id_of, ["gsm8k/17", "", 17, None, ["x"]])] == ["gsm8k/17", None, None, None, None]


def test_a_scored_trace_must_have_a_score(full_document):
    ScoredTrace.model_validate(full_document())
    for value in (MISSING, None, 1.5):
        with pytest.raises(ValidationError, match="quality_score"):
            ScoredTrace.model_validate(changed(full_document(), "metadata/quality_score", value))
