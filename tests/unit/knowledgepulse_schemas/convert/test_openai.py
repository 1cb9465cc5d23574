"""OpenAI chat messages and Responses items, built from the vendor's own types."""

import pytest
from openai.types.chat import (
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
)
from openai.types.chat.chat_completion_message_function_tool_call import Function
from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_reasoning_item import Summary

from knowledgepulse_schemas.convert import ConversionError, from_openai

ASK = {"role": "user", "content": "What is the weather in Paris?"}
CALL = ChatCompletionMessage(
    role="assistant",
    tool_calls=[
        ChatCompletionMessageFunctionToolCall(
            id="call_1", type="function", function=Function(name="weather", arguments='{"city": "Paris"}')
        )
    ],
)
ANSWER = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "Sunny"}]}
DONE = ChatCompletionMessage(role="assistant", content="It is sunny.")


def response(*output, **members):
    defaults = {"model": "gpt-5", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return Response(
        id="resp_1", object="response", created_at=1767225600, output=list(output), **defaults | members
    ).model_dump(mode="json")


def said(text="It is sunny."):
    content = [ResponseOutputText(type="output_text", text=text, annotations=[])]
    return ResponseOutputMessage(
        id="msg_1", type="message", role="assistant", status="completed", content=content
    )


def kinds(trace):
    return [(step.type, step.tool and step.tool.name) for step in trace.steps]


def test_converts_chat_messages_with_a_tool_call():
    messages = [ASK, CALL.model_dump(mode="json"), ANSWER, DONE.model_dump(mode="json")]

    trace = from_openai(messages).trace

    assert trace.task.objective == ASK["content"]
    assert kinds(trace) == [("tool_call", "weather"), ("observation", "weather"), ("thought", None)]
    assert trace.steps[0].input == {"city": "Paris"}
    assert trace.steps[1].content == "Sunny"
    assert trace.outcome.result_summary == "It is sunny."


def test_converts_a_response_with_its_input():
    items = [
        ResponseReasoningItem(
            id="rs_1", type="reasoning", summary=[Summary(type="summary_text", text="Look it up")]
        ),
        ResponseFunctionToolCall(
            type="function_call", call_id="call_1", name="weather", arguments='{"city": "Paris"}'
        ),
    ]
    given = [ASK, *(item.model_dump(mode="json") for item in items)]
    given.append({"type": "function_call_output", "call_id": "call_1", "output": "Sunny"})

    trace = from_openai({**response(said()), "input": given}).trace

    assert kinds(trace) == [
        ("thought", None),
        ("tool_call", "weather"),
        ("observation", "weather"),
        ("thought", None),
    ]
    assert trace.steps[0].content == "Look it up"


def test_vendor_objects_are_rejected_by_type_name():
    with pytest.raises(
        ConversionError, match=r"\[1\]: Input should be a valid object, got ChatCompletionMessage"
    ):
        from_openai([ASK, DONE])
