"""Anthropic messages, built from the vendor's own types."""

from knowledgepulse_schemas.convert import from_anthropic

ASK = {"role": "user", "content": "What is the weather in Paris?"}


def types():
    """Import the types, which takes seconds, only in the process that runs this test."""
    from anthropic import types

    return types


def message(*content, stop_reason="end_turn"):
    said = types().Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="claude",
        content=list(content),
        stop_reason=stop_reason,
        stop_sequence=None,
        usage=types().Usage(input_tokens=1, output_tokens=1),
    )
    return said.model_dump(mode="json")


def text(content):
    return types().TextBlock(type="text", text=content, citations=None)


def result(content, **members):
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **members}
    return {"role": "user", "content": [block]}


def test_converts_thinking_a_tool_call_and_its_result():
    thinking = types().ThinkingBlock(type="thinking", thinking="Look it up", signature="c2ln")
    use = types().ToolUseBlock(id="toolu_1", type="tool_use", name="weather", input={"city": "Paris"})
    called = message(thinking, text("One moment"), use, stop_reason="tool_use")
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
