"""Exports: LangSmith runs, Langfuse observations, OpenAI Agents SDK spans."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from atif import (
    Agent,
    ContentPart,
    ImageSource,
    Observation,
    ObservationResult,
    Step,
    Trajectory,
)
from atif import (
    ToolCall as AtifCall,
)
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langfuse.api.commons.types.observation_v2 import ObservationV2
from langsmith.schemas import Run as LangsmithRun

from knowledgepulse_schemas.convert import ConversionError, convert, from_atif, input_format_of

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


def run(number, run_type, inputs, outputs, parent=1, name=None):
    return LangsmithRun(
        id=UUID(int=number),
        trace_id=UUID(int=1),
        parent_run_id=None if parent is None else UUID(int=parent),
        name=name or run_type,
        run_type=run_type,
        start_time=START + timedelta(seconds=number),
        end_time=START + timedelta(seconds=number + 1),
        inputs=inputs,
        outputs=outputs,
    ).model_dump(mode="json")


def model_call(number, given, said):
    generation = {"text": said.content, "message": dumpd(said), "type": "ChatGeneration"}
    outputs = {"generations": [[generation]], "llm_output": {}, "type": "LLMResult"}
    return run(number, "llm", {"messages": [[dumpd(message) for message in given]]}, outputs)


def langsmith_runs():
    plain = [message.model_dump(mode="json") for message in (ASK, CALL, ANSWER, DONE)]
    return [
        run(1, "chain", {"messages": plain[:1]}, {"messages": plain}, None, name="forecaster"),
        model_call(2, [ASK], CALL),
        run(3, "tool", {"city": "Paris"}, {"output": dumpd(ANSWER)}, name="weather"),
        model_call(4, [ASK, CALL, ANSWER], DONE),
    ]


def test_langsmith_runs_of_a_trace_are_one_agent_run():
    trace = only(langsmith_runs()).trace

    assert input_format_of(langsmith_runs()).name == "langsmith"
    assert "span_context" not in trace.metadata.model_fields_set, "a UUID is no span"
    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == TRACE
    assert trace.task.objective == ASK.content
    assert (trace.metadata.agent_id, trace.metadata.created_at) == ("forecaster", "2026-01-01T00:00:02.000Z")


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


def observation(number, kind, given, said, parent="1", name=None):
    return json.loads(
        ObservationV2(
            id=str(number),
            trace_id="trace-1",
            start_time=START + timedelta(seconds=number),
            end_time=START + timedelta(seconds=number + 1),
            project_id="project",
            parent_observation_id=parent,
            type=kind,
            name=name or kind.lower(),
            input=given,
            output=said,
        ).model_dump_json(by_alias=True)
    )


def langfuse_observations():
    return [
        observation(1, "AGENT", ASK.content, DONE.content, None, name="forecaster"),
        observation(2, "GENERATION", [CHAT_ASK], CHAT_CALL),
        observation(3, "TOOL", {"city": "Paris"}, "Sunny", name="weather"),
        observation(4, "GENERATION", {"messages": [CHAT_ASK, CHAT_CALL, CHAT_ANSWER]}, json.dumps(CHAT_DONE)),
    ]


@pytest.mark.parametrize("wrapped", [lambda values: values, lambda values: {"data": values, "meta": {}}])
def test_langfuse_observations_of_a_trace_are_one_agent_run(wrapped):
    trace = only(wrapped(langfuse_observations())).trace

    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == TRACE
    assert (trace.metadata.agent_id, trace.metadata.created_at) == ("forecaster", "2026-01-01T00:00:02.000Z")


# ATIF -----------------------------------------------------------------------------------------------------


def trajectory(**members):
    result = ObservationResult(source_call_id="call_1", content="Sunny")
    image = ContentPart(type="image", source=ImageSource(media_type="image/png", path="a.png"))
    return Trajectory(
        schema_version="ATIF-v1.8",
        session_id="session-1",
        agent=Agent(name="forecaster", version="1"),
        steps=[
            Step(step_id=1, source="system", message="Be brief"),
            Step(
                step_id=2, source="user", message=[ContentPart(type="text", text="Weather in Paris?"), image]
            ),
            Step(
                step_id=3,
                source="agent",
                timestamp="2026-01-01T00:00:00Z",
                message="One moment",
                reasoning_content="Look it up",
                tool_calls=[
                    AtifCall(tool_call_id="call_1", function_name="weather", arguments={"city": "Paris"})
                ],
                observation=Observation(results=[result]),
            ),
            Step(step_id=4, source="agent", timestamp="2026-01-01T00:01:00Z", message="It is sunny."),
        ],
        **members,
    ).model_dump(mode="json", exclude_none=True)


def test_converts_an_atif_trajectory():
    conversion = from_atif(trajectory(notes="a note"))

    assert input_format_of(trajectory()).name == "atif"
    assert conversion.trace.task.objective == "Weather in Paris?"
    assert steps(conversion) == [
        ("thought", "Look it up", None),
        ("thought", "One moment", None),
        ("tool_call", None, "weather"),
        ("observation", "Sunny", "weather"),
        ("thought", "It is sunny.", None),
    ]
    metadata = conversion.trace.metadata
    assert (metadata.agent_id, metadata.created_at) == ("forecaster", "2026-01-01T00:01:00.000Z")
    assert {"notes", "system text", "steps[].message[].source"} <= set(conversion.losses)
