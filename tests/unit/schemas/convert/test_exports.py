"""Exports: LangSmith runs, Langfuse observations, OpenAI Agents SDK spans."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langfuse.api.commons.types.observation_level import ObservationLevel
from langfuse.api.commons.types.observation_v2 import ObservationV2
from langsmith.schemas import Run as LangsmithRun

from knowledgepulse_schemas.convert import ConversionError, convert, from_langfuse, from_langsmith, source_of

START = datetime(2026, 1, 1, tzinfo=UTC)
ASK, DONE = HumanMessage("What is the weather in Paris?"), AIMessage("It is sunny.")
CALL = AIMessage("", tool_calls=[ToolCall(name="weather", args={"city": "Paris"}, id="call_1")])
ANSWER = ToolMessage("Sunny", tool_call_id="call_1", name="weather")
TRACE = [
    ("tool_call", None, "weather"),
    ("observation", "Sunny", "weather"),
    ("thought", "It is sunny.", None),
]


def steps(conversion):
    return [(step.type, step.content, step.tool and step.tool.name) for step in conversion.trace.steps]


def only(document):
    (conversion,) = convert(document)
    assert not isinstance(conversion, ConversionError), conversion
    return conversion


# LangSmith ------------------------------------------------------------------------------------------------


def run(number, run_type, inputs, outputs, parent=1, **members):
    return LangsmithRun(
        id=UUID(int=number),
        trace_id=UUID(int=1),
        parent_run_id=None if parent is None else UUID(int=parent),
        name=members.pop("name", run_type),
        run_type=run_type,
        start_time=START + timedelta(seconds=number),
        end_time=START + timedelta(seconds=number + 1),
        inputs=inputs,
        outputs=outputs,
        **members,
    ).model_dump(mode="json")


def model_call(number, given, said, **members):
    generation = {"text": said.content, "message": dumpd(said), "type": "ChatGeneration"}
    outputs = {"generations": [[generation]], "llm_output": {}, "type": "LLMResult"}
    return run(number, "llm", {"messages": [[dumpd(message) for message in given]]}, outputs, **members)


def langsmith_runs(**root):
    plain = [message.model_dump(mode="json") for message in (ASK, CALL, ANSWER, DONE)]
    return [
        run(1, "chain", {"messages": plain[:1]}, {"messages": plain}, None, name="forecaster", **root),
        model_call(2, [ASK], CALL),
        run(3, "tool", {"city": "Paris"}, {"output": dumpd(ANSWER)}, name="weather"),
        model_call(4, [ASK, CALL, ANSWER], DONE),
    ]


def test_langsmith_runs_of_a_trace_are_one_agent_run():
    trace = only(langsmith_runs()).trace

    assert source_of(langsmith_runs()).name == "langsmith"
    assert "span_context" not in trace.metadata.model_extra, "a UUID is no span"
    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == TRACE
    assert trace.task.objective == ASK.content
    assert (trace.metadata.agent_id, trace.metadata.created_at) == ("forecaster", "2026-01-01T00:00:02.000Z")


def test_converts_nested_langsmith_runs():
    root, *children = langsmith_runs()

    assert steps(only({**root, "child_runs": children})) == TRACE


def test_a_langsmith_run_with_an_error_is_not_a_success():
    runs = langsmith_runs(error="GraphRecursionError('25')", status="error")

    trace = only(runs).trace

    assert trace.metadata.success is False
    assert trace.steps[-1].content == "GraphRecursionError('25')"


def test_the_step_after_a_failed_langsmith_tool_is_an_error_recovery():
    runs = langsmith_runs()
    runs[2] = run(3, "tool", {"city": "Paris"}, None, name="weather", error="TimeoutError()")

    assert [kind for kind, _, _ in steps(only(runs))] == ["tool_call", "observation", "error_recovery"]


def test_langsmith_feedback_is_a_label():
    feedback = {
        "success": {"n": 1, "avg": 0.0},
        "confidence": {"n": 1, "avg": 0.7},
        "tone": {"n": 1, "avg": 1},
    }

    trace = only(langsmith_runs(feedback_stats=feedback)).trace

    assert (trace.metadata.success, trace.outcome.confidence) == (False, 0.7)


def test_every_langsmith_trace_is_a_run():
    other = [{**one, "trace_id": str(UUID(int=9))} for one in langsmith_runs()]

    assert len(from_langsmith(langsmith_runs() + other)) == 2


# Langfuse -------------------------------------------------------------------------------------------------

CHAT_ASK = {"role": "user", "content": "What is the weather in Paris?"}
CHAT_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
        }
    ],
}
CHAT_ANSWER = {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"}
CHAT_DONE = {"role": "assistant", "content": "It is sunny."}


def observation(number, kind, given, said, parent="1", **members):
    return json.loads(
        ObservationV2(
            id=str(number),
            trace_id="trace-1",
            start_time=START + timedelta(seconds=number),
            end_time=START + timedelta(seconds=number + 1),
            project_id="project",
            parent_observation_id=parent,
            type=kind,
            name=members.pop("name", kind.lower()),
            input=given,
            output=said,
            **members,
        ).model_dump_json(by_alias=True)
    )


def langfuse_observations(**root):
    return [
        observation(
            1, "AGENT", "What is the weather in Paris?", "It is sunny.", None, name="forecaster", **root
        ),
        observation(2, "GENERATION", [CHAT_ASK], CHAT_CALL),
        observation(3, "TOOL", {"city": "Paris"}, "Sunny", name="weather"),
        observation(4, "GENERATION", {"messages": [CHAT_ASK, CHAT_CALL, CHAT_ANSWER]}, json.dumps(CHAT_DONE)),
    ]


def langfuse_trace():
    """Return a trace of API version 1, for which the package no longer has types."""
    return {
        "id": "trace-1",
        "name": "forecaster",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "input": "What is the weather in Paris?",
        "output": "It is sunny.",
        "observations": langfuse_observations(),
        "scores": [
            {"id": "s1", "name": "success", "value": 1, "dataType": "BOOLEAN"},
            {"id": "s2", "name": "confidence", "value": 0.6, "dataType": "NUMERIC"},
            {"id": "s3", "name": "tone", "value": "warm", "dataType": "CATEGORICAL"},
        ],
    }


@pytest.mark.parametrize("wrapped", [lambda values: values, lambda values: {"data": values, "meta": {}}])
def test_langfuse_observations_of_a_trace_are_one_agent_run(wrapped):
    trace = only(wrapped(langfuse_observations())).trace

    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == TRACE
    assert (trace.metadata.agent_id, trace.metadata.created_at) == ("forecaster", "2026-01-01T00:00:02.000Z")


def test_converts_snake_case_langfuse_exports():
    names = {"traceId": "trace_id", "startTime": "start_time", "endTime": "end_time"}
    names["parentObservationId"] = "parent_observation_id"
    values = [
        {names.get(name, name): value for name, value in one.items()} for one in langfuse_observations()
    ]

    assert only(values).trace == only(langfuse_observations()).trace


def test_langfuse_scores_are_labels():
    trace = only(langfuse_trace()).trace

    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == TRACE
    assert (trace.metadata.success, trace.metadata.outcome_source) == (True, "label")
    assert trace.outcome.confidence == 0.6


@pytest.mark.parametrize("first", [True, False])
def test_a_langfuse_score_of_an_observation_is_no_label(first):
    document = langfuse_trace()
    score = {"name": "success", "value": 0, "observationId": document["observations"][0]["id"]}
    document["scores"].insert(0 if first else len(document["scores"]), score)

    conversion = only(document)

    assert conversion.trace.metadata.success is True
    assert "scores[] of observations" in conversion.losses


def test_the_step_after_a_failed_langfuse_tool_is_an_error_recovery():
    values = langfuse_observations()
    error = {"level": ObservationLevel.ERROR, "status_message": "no such city", "name": "weather"}
    values[2] = observation(3, "TOOL", {"city": "Paris"}, None, **error)

    assert steps(only(values))[1:] == [
        ("observation", "no such city", "weather"),
        ("error_recovery", "It is sunny.", None),
    ]


def downloaded_with_its_trace():
    trace = langfuse_trace()
    return {"observations": trace.pop("observations"), "trace": trace}


def downloaded_with_its_scores():
    trace = langfuse_trace()
    return {"observations": trace["observations"], "scores": trace["scores"]}


@pytest.mark.parametrize("download", [downloaded_with_its_trace, downloaded_with_its_scores])
def test_converts_downloads_from_langfuses_trace_view(download):
    conversion = only(download())

    assert source_of(download()).name == "langfuse"
    assert steps(conversion) == TRACE
    assert conversion.trace.id == only(langfuse_trace()).trace.id
    assert conversion.trace.metadata.outcome_source == "label"


def test_langfuse_observations_below_one_that_was_not_exported_belong_to_the_trace():
    trace = langfuse_trace()
    trace["observations"] = [one | {"parentObservationId": "unknown"} for one in trace["observations"][1:]]

    assert steps(only(trace)) == TRACE


@pytest.mark.parametrize("name", ["execute_tool weather", "running tool: weather"])
def test_a_tools_span_answers_the_models_call(name):
    """As OpenTelemetry's conventions and Pydantic AI name it."""
    values = langfuse_observations()
    values[2] = observation(3, "TOOL", {"city": "Paris"}, "Sunny", name=name)

    assert steps(only(values)) == TRACE


def test_an_empty_output_of_a_tool_is_no_response():
    """As in Google's ADK, where the next request has the response."""
    values = langfuse_observations()
    values[2] = observation(3, "TOOL", {"city": "Paris"}, "{}", name="weather")

    assert steps(only(values)) == TRACE


# What Langfuse records for models that frameworks call: as in the traces of its own tests, see the README.
CITY = {"city": "Paris"}
ASKED = {"role": "user", "parts": [{"text": CHAT_ASK["content"]}]}
CALLED_BY = {"role": "model", "parts": [{"function_call": {"name": "weather", "args": CITY}}]}
ANSWERED = {"role": "user", "parts": [{"function_response": {"name": "weather", "response": "Sunny"}}]}
SAID = {"role": "model", "parts": [{"text": "It is sunny."}]}
VERCEL = {"toolCallId": "call_1", "toolName": "weather"}
CALLS = CHAT_CALL["tool_calls"]
RECORDED = {
    "Gemini": [
        ({"model": "gemini", "contents": CHAT_ASK["content"]}, {"candidates": [{"content": CALLED_BY}]}),
        ({"contents": [ASKED, CALLED_BY, ANSWERED]}, {"candidates": [{"content": SAID}], "usage": {}}),
    ],
    "Google's ADK": [
        ({"contents": [ASKED], "config": {}}, {"content": CALLED_BY, "finish_reason": "STOP"}),
        ({"contents": [ASKED, CALLED_BY, ANSWERED]}, {"content": SAID, "finish_reason": "STOP"}),
    ],
    "Pydantic AI": [
        ([CHAT_ASK], {"index": 0, "message": CHAT_CALL}),
        ([CHAT_ASK, CHAT_CALL, CHAT_ANSWER], {"index": 0, "message": CHAT_DONE, "finish_reason": "stop"}),
    ],
    "the Vercel AI SDK": [
        ({"prompt": CHAT_ASK["content"]}, [VERCEL | {"input": json.dumps(CITY)}]),
        (
            [
                {"role": "user", "content": [{"type": "text", "text": CHAT_ASK["content"]}]},
                {"role": "assistant", "content": [VERCEL | {"type": "tool-call", "args": CITY}]},
                {
                    "role": "tool",
                    "content": [
                        VERCEL | {"type": "tool-result", "output": {"type": "text", "value": "Sunny"}}
                    ],
                },
            ],
            "It is sunny.",
        ),
    ],
    "LangChain": [
        (
            [CHAT_ASK, {"role": "tool", "content": {"type": "function", "function": {"name": "weather"}}}],
            {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": CALLS}},
        ),
        ([CHAT_ASK, CHAT_CALL, CHAT_ANSWER], CHAT_DONE),
    ],
    "LangChain.js": [
        ([CHAT_ASK], CHAT_CALL),
        ([CHAT_ASK, CHAT_CALL, {"role": "weather", "content": "Sunny"}], CHAT_DONE),
    ],
    "Koog": [
        ([CHAT_ASK], [{"role": "assistant", "content": json.dumps(CALLS), "finish_reason": "tool_calls"}]),
        (
            [CHAT_ASK, {"role": "tool", "content": json.dumps(CALLS)}, {"role": "tool", "content": "Sunny"}],
            CHAT_DONE,
        ),
    ],
    "LlamaIndex": [([CHAT_ASK["content"]], CHAT_CALL), ([CHAT_ASK, CHAT_CALL, CHAT_ANSWER], CHAT_DONE)],
}


@pytest.mark.parametrize("framework", RECORDED)
def test_converts_what_langfuse_records_for(framework):
    values = [observation(1, "AGENT", None, None, None)]
    values += [observation(n, "GENERATION", *call) for n, call in enumerate(RECORDED[framework], start=2)]

    conversion = only(values)

    assert conversion.trace.task.objective == CHAT_ASK["content"]
    assert [(step.type, step.content) for step in conversion.trace.steps] == [
        (kind, content) for kind, content, _ in TRACE
    ]
    assert (conversion.trace.steps[0].tool.name, conversion.trace.steps[0].input) == ("weather", CITY)


@pytest.mark.parametrize(
    ("called", "failed"),
    [
        (CALLED_BY, {"parts": [{"functionResponse": {"name": "weather", "response": {"isError": True}}}]}),
        (
            {"role": "assistant", "content": [VERCEL | {"type": "tool-call", "args": CITY}]},
            {
                "role": "tool",
                "content": [VERCEL | {"type": "tool-result", "result": "none", "isError": True}],
            },
        ),
        (
            {"role": "assistant", "content": [VERCEL | {"type": "tool-call", "args": CITY}]},
            {
                "role": "tool",
                "content": [
                    VERCEL
                    | {"type": "tool-result", "output": {"type": "error-text", "value": "no such city"}}
                ],
            },
        ),
    ],
    ids=["Gemini", "the Vercel AI SDK before 5", "the Vercel AI SDK"],
)
def test_the_step_after_a_failed_tool_in_recorded_messages_is_an_error_recovery(called, failed):
    asked = ASKED if "parts" in called else CHAT_ASK
    values = [
        observation(1, "AGENT", None, None, None),
        observation(2, "GENERATION", [asked, called, failed], CHAT_DONE),
    ]

    assert [step.type for step in only(values).trace.steps] == ["tool_call", "observation", "error_recovery"]


@pytest.mark.parametrize(
    ("answer", "success"),
    [
        ({"content": SAID, "finish_reason": "STOP"}, True),
        ({"content": SAID, "finish_reason": "MAX_TOKENS"}, False),
        ({"content": SAID, "finishReason": "SAFETY"}, False),
        ({"candidates": [{"content": SAID, "finishReason": "MAX_TOKENS"}]}, False),
    ],
)
def test_a_cut_off_answer_of_gemini_or_the_adk_is_not_a_success(answer, success):
    values = [observation(1, "AGENT", None, None, None)]
    values.append(observation(2, "GENERATION", {"contents": [ASKED]}, answer))

    assert only(values).trace.metadata.success is success


def test_a_langfuse_trace_with_observation_ids_only_is_rejected():
    with pytest.raises(ConversionError, match="observations are ids only"):
        from_langfuse({**langfuse_trace(), "observations": ["1", "2"]})


# The OpenAI Agents SDK ------------------------------------------------------------------------------------


def agents_span(number, data, parent=None, error=None):
    return {
        "object": "trace.span",
        "id": f"span_{number}",
        "trace_id": "trace_1",
        "parent_id": parent,
        "started_at": (START + timedelta(seconds=number)).isoformat(),
        "ended_at": (START + timedelta(seconds=number + 1)).isoformat(),
        "span_data": data,
        "error": error,
    }


def agents_export(error=None):
    """Return an export of SDK 0.24: ``export()`` of a trace and of its spans."""
    function = {"type": "function", "name": "weather", "input": '{"city": "Paris"}', "output": "Sunny"}
    function["mcp_data"] = {"server": "atlas"}
    generation = {"type": "generation", "model": "gpt-5", "model_config": {}, "usage": {"input_tokens": 9}}
    return [
        {
            "object": "trace",
            "id": "trace_1",
            "workflow_name": "weather",
            "group_id": None,
            "metadata": {"a": "b"},
        },
        agents_span(
            1, {"type": "agent", "name": "forecaster", "handoffs": [], "tools": [], "output_type": "str"}
        ),
        agents_span(2, {**generation, "input": [CHAT_ASK], "output": [CHAT_CALL]}, "span_1"),
        agents_span(3, function, "span_1", error),
        agents_span(
            4, {**generation, "input": [CHAT_ASK, CHAT_CALL, CHAT_ANSWER], "output": [CHAT_DONE]}, "span_1"
        ),
    ]


def test_agents_sdk_spans_of_a_trace_are_one_run():
    conversion = only(agents_export())

    assert source_of(agents_export()).name == "openai_agents"
    assert steps(conversion) == TRACE
    assert conversion.trace.steps[0].tool.mcp_server == "atlas"
    assert conversion.trace.metadata.agent_id == "forecaster"
    assert {"metadata", "span_data.usage"} <= set(conversion.losses)


def test_the_step_after_a_failed_agents_sdk_function_is_an_error_recovery():
    error = {"message": "Error running tool", "data": {"error": "no such city"}}

    conversion = only(agents_export(error))

    assert [kind for kind, _, _ in steps(conversion)] == ["tool_call", "observation", "error_recovery"]
    assert "error.data" in conversion.losses


def test_response_spans_without_content_are_rejected():
    """The SDK exports only a response's id; the content stays in OpenAI's store."""
    spans = agents_export()[:2]
    spans.append(agents_span(2, {"type": "response", "response_id": "resp_1", "usage": {}}, "span_1"))

    (outcome,) = convert(spans)

    assert isinstance(outcome, ConversionError)
    assert "no message content was recorded" in str(outcome)
