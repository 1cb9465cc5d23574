"""The conversion rules from a run to a trace, which all sources share."""

import json
import time
from datetime import UTC, datetime

import pytest

import knowledgepulse_convert as convert_package
from knowledgepulse_convert import ConversionError, Losses, Options, RunOutcome
from knowledgepulse_convert.common.ir import (
    Message,
    Run,
    Text,
    ToolCall,
    ToolCallResponse,
    ToolDefinition,
)
from knowledgepulse_convert.common.reading import parse_time
from knowledgepulse_convert.common.trace import to_trace
from knowledgepulse_convert.messages.definitions import definitions_of
from knowledgepulse_schemas.trace import ReasoningTrace
from knowledgepulse_worker.scoring import Scorer
from support.conversions import FOLDER, read_cases, small_documents

DOCUMENTS = small_documents()
ASK = Message("user", (Text("Fix the build"),))
DONE = Message("assistant", (Text("The build is green"),))
KEPT = Options(keep_prompt=True)
CALL = Message("assistant", (ToolCall("shell", '{"command": "make"}', "call-1", mcp_server="local"),))
FAILED = Message("tool", (ToolCallResponse("exit status 2", "call-1", failed=True),))


def convert(*messages, options=None, **run):
    return to_trace(Run(list(messages), framework="test", **run), options)


def steps(*messages):
    trace = json.loads(convert(*messages).trace.to_json())
    return [{name: value for name, value in step.items() if name != "step_id"} for step in trace["steps"]]


def test_a_given_objective_is_that_of_a_run_without_a_text_of_the_user():
    given = Options(objective="Mend the build, please")

    assert convert(DONE, options=given).trace.task.objective == "Mend the build, please"
    assert convert(ASK, DONE, options=given).trace.task.objective == "Fix the build"
    with pytest.raises(ConversionError, match="--objective"):
        convert(DONE, options=Options(objective=" "))


PROMPT = Message("system", (Text("Be brief"), ToolDefinition("shell", "Runs it", {"type": "object"})))
LEFT_OUT = {"system text", "tool definitions"}


HI = Message("user", (Text("Hi!"),))
LONG = Message("user", (Text("Please fix the build"),))
HELLO = Message("assistant", (Text("Hello"),))


@pytest.mark.parametrize(
    ("messages", "objective", "first"),
    [
        ((HI, HELLO, LONG, DONE), "Please fix the build", "Hi!"),
        ((HI, LONG, DONE), "Please fix the build", "Hi!"),
        ((HELLO, HI, LONG, DONE), "Please fix the build", "Hello"),
        ((HI, HELLO, Message("user", (Text("OK"),)), DONE), "Hi!", "Hello"),
        ((HI, CALL, LONG, DONE), "Hi!", None),
        ((LONG, HELLO, Message("user", (Text("And the tests, too"),))), "Please fix the build", "Hello"),
        ((HI, Message("user", (Text("修复构建"),)), DONE), "修复构建", "Hi!"),
    ],
)
def test_the_objective_is_the_first_request_of_three_words_before_a_call(messages, objective, first):
    trace = convert(*messages).trace

    assert (trace.task.objective, trace.steps[0].content) == (objective, first)


def test_the_name_of_an_mcp_tool_is_split():
    call = Message("assistant", (ToolCall("mcp__github__search_code", {}, "1"),))
    answers = [
        Message("tool", (ToolCallResponse("found", "1"),)),
        Message("tool", (ToolCallResponse("more", name="mcp__github__list__all"),)),
    ]

    defined = Message("system", (ToolDefinition("mcp__github__search_code"),))
    trace = convert(defined, ASK, call, *answers, options=KEPT).trace

    assert trace.task.tools[0].name == "mcp__github__search_code"  # as the model knows it
    assert [(step.tool.mcp_server, step.tool.name) for step in trace.steps] == [
        ("github", "search_code"),
        ("github", "search_code"),
        ("github", "list__all"),
    ]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00"),
        ("2026-01-01T00:00:00", "2026-01-01T00:00:00"),  # without an offset, UTC
        ("2026-01-01 00:00:00.5", "2026-01-01T00:00:00.500000"),
        (1767225600, "2026-01-01T00:00:00"),
        ("yesterday", None),
        (1e300, None),
        (True, None),
    ],
)
def test_a_time_without_an_offset_is_in_utc(monkeypatch, text, moment):
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        found = parse_time(text)
    time.tzset()
    assert found == (None if moment is None else datetime.fromisoformat(f"{moment}+00:00"))


def test_system_text_and_tool_definitions_are_reported_or_kept_on_demand():
    dropped = convert(PROMPT, ASK, DONE)
    kept = convert(PROMPT, Message("system", (Text("Use tools"),)), ASK, DONE, options=KEPT)

    assert dropped.trace.task.model_dump(exclude_unset=True).keys() == {"objective"}
    assert dropped.losses["system text"].characters == 8
    assert set(dropped.losses) == LEFT_OUT
    assert not kept.losses
    assert kept.trace.task.model_dump(exclude_unset=True) == {
        "objective": "Fix the build",
        "system": "Be brief\n\nUse tools",
        "tools": [{"name": "shell", "description": "Runs it", "parameters": {"type": "object"}}],
    }


def test_what_is_kept_for_later_changes_no_score():
    """Native ids, ids of calls, system text and tool definitions are for consumers; the formula is not."""
    plain = json.loads(convert(ASK, CALL, FAILED, DONE).trace.to_json())
    for step in plain["steps"]:
        step.pop("tool_call_id", None)
    full = convert(PROMPT, ASK, CALL, FAILED, DONE, native_id="run-1", parent_id="run-0", options=KEPT).trace

    bare, full_score = (Scorer().evaluate(trace) for trace in (ReasoningTrace.model_validate(plain), full))

    assert bare == full_score


@pytest.mark.parametrize(
    ("arguments", "step_input"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("ls -l", {"raw": "ls -l"}),
        ("[1]", {"raw": "[1]"}),
        ('{"a": ', {"raw": '{"a": '}),
        ([1], {"raw": [1]}),
        ("", None),
        (None, None),
    ],
)
def test_arguments_that_are_not_an_object_are_kept_raw(arguments, step_input):
    step = steps(ASK, Message("assistant", (ToolCall("f", arguments),)))[0]

    assert step.get("input") == step_input


def test_given_outcomes_override_the_sources_by_native_or_trace_id():
    own = RunOutcome(success=True, confidence=0.2)
    by_native_id = Options(outcomes={"run-1": RunOutcome(success=False)})
    trace = convert(ASK, DONE, native_id="run-1", outcome=own, options=by_native_id).trace
    by_trace_id = Options(outcomes={trace.id: RunOutcome(confidence=0.8)})

    assert (trace.metadata.success, trace.outcome.confidence) == (False, 0.2)
    assert (
        convert(ASK, DONE, native_id="run-1", outcome=own, options=by_trace_id).trace.outcome.confidence
        == 0.8
    )


def test_values_that_json_cannot_represent_are_rejected():
    """A Python caller may pass objects that JSON cannot represent."""
    with pytest.raises(ConversionError, match="cannot be serialised as JSON"):
        convert(ASK, Message("assistant", (ToolCall("f", {"at": datetime.now(UTC)}),)))


def test_an_object_of_a_vendor_is_rejected_by_the_name_of_its_type():
    with pytest.raises(ConversionError, match=r"\[1\]: Input should be a valid object, got datetime"):
        convert_package.from_openai([{"role": "user", "content": "Hi"}, datetime.now(UTC)])


def test_created_at_is_the_end_of_the_run():
    known = convert(ASK, DONE, ended_at=datetime(2026, 1, 31, 12, tzinfo=UTC)).trace.metadata
    unknown = convert(ASK, DONE).trace.metadata
    dated = Options(recorded_at=datetime(2026, 2, 1, tzinfo=UTC))
    of_file = convert(ASK, DONE, options=dated).trace.metadata

    assert (of_file.created_at, of_file.created_at_source) == ("2026-02-01T00:00:00.000Z", "file")
    assert known.created_at == "2026-01-31T12:00:00.000Z"
    assert "created_at_source" not in known.model_extra
    assert (unknown.created_at, unknown.created_at_source) == ("1970-01-01T00:00:00.000Z", "unknown")


@pytest.mark.parametrize(
    ("names", "domain"),
    [
        (("coder", "payments"), "code"),
        (("x", "payments"), "finance"),
        (("x",), "medical"),
    ],
)
def test_the_first_name_in_the_domain_map_decides_and_the_formats_is_the_last(names, domain):
    options = Options(domains={"payments": "finance", "coder": "code", "test": "medical"})

    assert convert(ASK, DONE, names=names, options=options).trace.metadata.task_domain == domain
    assert convert(ASK, DONE, names=names).trace.metadata.task_domain == "default"


@pytest.mark.parametrize("name", [name for name in convert_package.__all__ if name.startswith("from_")])
def test_a_converter_converts_documents_of_its_format(name):
    source = name.removeprefix("from_")
    cases = read_cases(FOLDER / f"{source}.jsonl")
    document = next(case["document"] for case in cases if [type(run) for run in case["expected"]] == [dict])

    found = getattr(convert_package, name)(document)

    assert (found if isinstance(found, list) else [found]) == list(convert_package.convert(document, source))


def test_a_converter_of_one_run_refuses_several():
    with pytest.raises(ConversionError, match="2 runs instead of one"):
        convert_package.from_openai([DOCUMENTS["openai"]] * 2)


@pytest.mark.parametrize(("name", "usual"), [("mini_swe_agent", "code"), ("atif", "default")])
def test_the_session_of_a_coding_agent_is_code_unless_told_otherwise(name, usual):
    def domain(**domains):
        options = Options(domains=domains)
        [conversion] = convert_package.convert(DOCUMENTS[name], options=options)
        return conversion.metadata.task_domain

    assert domain() == domain(other="medical") == usual
    assert domain(default="finance") == domain(**{name: "finance"}) == "finance"


@pytest.mark.parametrize(("name", "other"), [("visibility", "org"), ("privacy_level", "federated")])
def test_a_trace_is_private_by_default(name, other):
    assert getattr(convert(ASK, DONE).trace.metadata, name) == "private"
    assert getattr(convert(ASK, DONE, options=Options(**{name: other})).trace.metadata, name) == other


def test_lone_surrogates_are_replaced():
    """As in a text cut in the middle of an emoji: JSON can escape it, UTF-8 cannot encode it."""
    assert b"cut ?" in convert(ASK, Message("assistant", (Text("cut \ud83d"),))).trace.to_json()


def test_an_id_with_a_lone_surrogate_still_names_its_trace():
    conversion = convert(ASK, DONE, native_id="run \ud800")

    assert conversion.trace.id == convert(ASK, DONE, native_id="run ?").trace.id


def test_non_finite_numbers_become_null():
    value = convert(ASK, Message("assistant", (ToolCall("f", {"x": float("nan")}),))).trace.to_json()

    assert json.loads(value, parse_constant=pytest.fail)["steps"][0]["input"] == {"x": None}


# Through every source -------------------------------------------------------------------------------------


def traces_of(name, options=None):
    document = json.loads(json.dumps(DOCUMENTS[name]))
    return [conversion.trace for conversion in convert_package.convert(document, options=options)]


PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "weather", "description": "The weather", "parameters": PARAMETERS}
DEFINITIONS = {
    "openai": WEATHER,
    "openai chat": {"type": "function", "function": WEATHER},
    "anthropic": {"name": "weather", "description": "The weather", "input_schema": PARAMETERS},
    "bedrock": {
        "toolSpec": {"name": "weather", "description": "The weather", "inputSchema": {"json": PARAMETERS}}
    },
    "gemini": {"functionDeclarations": [WEATHER]},
    "openinference": {"tool": {"json_schema": json.dumps({"type": "function", "function": WEATHER})}},
}


@pytest.mark.parametrize("vendor", DEFINITIONS)
def test_every_vendors_tool_definitions_have_one_form(vendor):
    losses = Losses()

    (message,) = definitions_of([DEFINITIONS[vendor]], "tools", losses)

    assert message.parts == (ToolDefinition("weather", "The weather", PARAMETERS),)
    assert not losses


KEPT_PROMPTS = (
    *("openai", "openai responses", "anthropic", "bedrock", "otlp", "langsmith", "openhands"),
    *("openhands sdk", "atif", "inspect"),
)
"""Documents with system text and a tool definition."""


@pytest.mark.parametrize("name", KEPT_PROMPTS)
def test_prompts_are_kept_on_demand(name):
    (trace,) = traces_of(name, KEPT)

    assert trace.task.system == "Be brief"
    assert [tool.name for tool in trace.task.tools] == ["weather"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_source_gives_the_same_traces_again_with_other_outcomes_if_these_are_given(name):
    traces = traces_of(name)
    outcomes = {trace.id: RunOutcome(success=False, confidence=0.9) for trace in traces}

    assert traces_of(name) == traces
    assert len(outcomes) == len(traces)
    for trace in traces_of(name, Options(outcomes=outcomes)):
        assert (trace.metadata.success, trace.metadata.outcome_source) == (False, "label")
        assert (trace.outcome.confidence, trace.metadata.confidence_source) == (0.9, "label")
