"""Anthropic messages, built from the vendor's own types."""

import pytest
from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock, Usage
from anthropic.types.beta import BetaMCPToolUseBlock

from knowledgepulse_schemas.convert import from_anthropic, source_of

ASK = {"role": "user", "content": "What is the weather in Paris?"}
USE = ToolUseBlock(id="toolu_1", type="tool_use", name="weather", input={"city": "Paris"})


def message(*content, stop_reason="end_turn"):
    return Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="claude",
        content=list(content),
        stop_reason=stop_reason,
        stop_sequence=None,
        usage=Usage(input_tokens=1, output_tokens=1),
    ).model_dump(mode="json")


def text(content):
    return TextBlock(type="text", text=content, citations=None)


def result(content, **members):
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **members}
    return {"role": "user", "content": [block]}


def test_converts_thinking_a_tool_call_and_its_result():
    thinking = ThinkingBlock(type="thinking", thinking="Look it up", signature="c2ln")
    called = message(thinking, text("One moment"), USE, stop_reason="tool_use")
    record = {
        **message(text("It is sunny.")),
        "messages": [ASK, called, result([{"type": "text", "text": "Sunny"}])],
    }

    conversion = from_anthropic(record)

    assert [(step.type, step.content) for step in conversion.trace.steps] == [
        ("thought", "Look it up"),
        ("thought", "One moment"),
        ("tool_call", None),
        ("observation", "Sunny"),
        ("thought", "It is sunny."),
    ]
    assert conversion.trace.steps[3].tool.name == "weather"
    assert conversion.trace.steps[2].input == {"city": "Paris"}
    assert "messages[].content[].signature" in conversion.losses


def test_only_is_error_makes_a_result_a_failure():
    flagged = [ASK, message(USE), result("no such city", is_error=True), message(text("Hm"))]
    unflagged = [ASK, message(USE), result("error: no such city"), message(text("Hm"))]

    assert [step.type for step in from_anthropic(flagged).trace.steps][-1] == "error_recovery"
    assert [step.type for step in from_anthropic(unflagged).trace.steps][-1] == "thought"


@pytest.mark.parametrize(
    ("stop_reason", "success"),
    [("end_turn", True), ("tool_use", True), ("refusal", False), ("max_tokens", False)],
)
def test_a_refused_or_cut_off_answer_is_not_a_success(stop_reason, success):
    record = {**message(text("It is"), stop_reason=stop_reason), "messages": [ASK]}

    assert from_anthropic(record).trace.metadata.success is success


def test_an_mcp_tool_has_its_servers_name():
    use = BetaMCPToolUseBlock(
        id="mcptoolu_1", type="mcp_tool_use", name="lookup", server_name="atlas", input={}
    )
    messages = [ASK, {"role": "assistant", "content": [use.model_dump(mode="json")]}]

    assert from_anthropic(messages).trace.steps[0].tool.mcp_server == "atlas"


def test_an_error_of_a_server_tool_is_a_failure():
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}}
    error = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
    }
    answer = {"role": "assistant", "content": [use, error, {"type": "text", "text": "I do not know"}]}

    assert [step.type for step in from_anthropic([ASK, answer]).trace.steps] == [
        "tool_call",
        "observation",
        "error_recovery",
    ]


def test_system_text_and_images_are_reported_as_losses():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    asked = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}

    losses = from_anthropic({**message(text("A cat")), "system": "Be brief", "messages": [asked]}).losses

    assert losses["system text"].characters == len("Be brief")
    assert losses["messages[].content[].source"].characters > 0


def test_messages_without_anthropic_blocks_are_recognised_by_the_response():
    assert source_of({**message(text("It is sunny.")), "messages": [ASK]}).name == "anthropic"
    assert source_of([ASK, message(USE)]).name == "anthropic"
