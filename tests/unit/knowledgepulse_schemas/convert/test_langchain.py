"""LangChain messages in all serialised forms."""

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    messages_to_dict,
)

from knowledgepulse_schemas.convert import from_langchain, input_format_of

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

    assert input_format_of(document).name == "langchain"
    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == [
        ("thought", "One moment", None),
        ("tool_call", None, "weather"),
        ("observation", "no such city", "weather"),
        ("error_recovery", "I do not know", None),
    ]
    assert trace.steps[1].input == {"city": "Paris"}
    assert trace.metadata.success
