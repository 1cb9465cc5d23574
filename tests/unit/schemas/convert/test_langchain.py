"""LangChain messages in all serialised forms."""

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
    messages_to_dict,
)

from knowledgepulse_schemas.convert import from_langchain, source_of

MESSAGES = [
    SystemMessage("Be brief"),
    HumanMessage("What is the weather in Paris?"),
    AIMessage(
        [
            {"type": "text", "text": "One moment"},
            {"type": "tool_use", "id": "1", "name": "weather", "input": {}},
        ],
        tool_calls=[ToolCall(name="weather", args={"city": "Paris"}, id="1")],
    ),
    ToolMessage("no such city", tool_call_id="1", status="error", name="weather"),
    AIMessage("I do not know", response_metadata={"finish_reason": "stop"}),
]

WAYS = {
    "model_dump": lambda messages: [message.model_dump(mode="json") for message in messages],
    "messages_to_dict": messages_to_dict,
    "dumpd": lambda messages: [dumpd(message) for message in messages],
}


@pytest.mark.parametrize("way", WAYS)
def test_all_serialised_forms_give_the_same_trace(way):
    document = WAYS[way](MESSAGES)

    trace = from_langchain(document).trace

    assert source_of(document).name == "langchain"
    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == [
        ("thought", "One moment", None),
        ("tool_call", None, "weather"),
        ("observation", "no such city", "weather"),
        ("error_recovery", "I do not know", None),
    ]
    assert trace.steps[1].input == {"city": "Paris"}
    assert trace.metadata.success


def test_converts_graph_states_and_thread_snapshots():
    state = {"messages": WAYS["model_dump"](MESSAGES), "documents": ["a text"]}
    snapshot = {
        "values": state,
        "next": [],
        "created_at": "2026-01-31T12:00:00+00:00",
        "checkpoint": {"thread_id": "t", "checkpoint_id": "c"},
        "tasks": [],
    }

    conversion = from_langchain(snapshot)

    assert source_of(state).name == source_of(snapshot).name == "langchain"
    assert from_langchain(state).trace.steps == conversion.trace.steps
    assert conversion.trace.metadata.created_at == "2026-01-31T12:00:00.000Z"
    assert "values.documents" in conversion.losses


def test_a_failed_task_is_not_a_success():
    messages = WAYS["model_dump"](MESSAGES)
    snapshot = {"values": {"messages": messages}, "tasks": [{"name": "agent", "error": "TimeoutError()"}]}

    conversion = from_langchain(snapshot)

    assert conversion.trace.metadata.success is False


def test_an_invalid_tool_call_is_a_failure():
    broken = InvalidToolCall(name="weather", args='{"city": ', id="1", error="not JSON")
    messages = [MESSAGES[1], AIMessage("", invalid_tool_calls=[broken]), AIMessage("Again")]

    steps = from_langchain(WAYS["model_dump"](messages)).trace.steps

    assert [step.type for step in steps] == ["tool_call", "observation", "error_recovery"]
    assert steps[0].input == {"raw": '{"city": '}


def test_reasoning_is_a_thought():
    blocks = [{"type": "reasoning", "reasoning": "Look it up"}, {"type": "text", "text": "Sunny"}]

    steps = from_langchain(WAYS["model_dump"]([MESSAGES[1], AIMessage(blocks)])).trace.steps

    assert [step.content for step in steps] == ["Look it up", "Sunny"]


def test_a_cut_off_answer_is_not_a_success():
    cut = AIMessage("It is", response_metadata={"finish_reason": "length"})

    assert from_langchain(WAYS["model_dump"]([MESSAGES[1], cut])).trace.metadata.success is False


CALLED = {"name": "weather", "arguments": '{"city": "Paris"}'}
OLDER = {
    "tool calls of the provider": {
        "additional_kwargs": {"tool_calls": [{"id": "1", "type": "function", "function": CALLED}]}
    },
    "a function call of the provider": {"additional_kwargs": {"function_call": CALLED}},
    "a block of Anthropic": {
        "content": [{"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Paris"}}]
    },
}


@pytest.mark.parametrize("members", OLDER.values(), ids=OLDER)
def test_calls_that_only_the_provider_s_members_have_are_calls(members):
    """As in messages from before LangChain had ``tool_calls``."""
    document = [
        {"type": "human", "content": "What is the weather in Paris?"},
        {"type": "ai", "content": "", **members},
        {"type": "tool", "content": "Sunny", "tool_call_id": "1", "name": "weather"},
    ]

    conversion = from_langchain(document)

    call, answer = conversion.trace.steps
    assert (call.type, call.tool.name, call.input) == ("tool_call", "weather", {"city": "Paris"})
    assert (answer.content, answer.tool.name) == ("Sunny", "weather")
    assert not conversion.losses


def test_a_chat_message_has_the_role_that_it_names():
    document = [
        {"type": "chat", "role": "user", "content": "Fix it"},
        {"type": "chat", "role": "critic", "content": "Done"},
    ]

    trace = from_langchain(document).trace

    assert (trace.task.objective, trace.outcome.result_summary) == ("Fix it", "Done")
