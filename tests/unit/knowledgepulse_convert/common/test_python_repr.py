"""Messages that tracers write as Python represents them."""

import pytest

from knowledgepulse_convert.common.python_repr import parse_repr


def test_messages_are_read_with_texts_that_look_like_objects():
    content = "[TextContent(text='Is <lambda> at 0x7f a \\'b\\'?')]"
    message = f"ChatMessage(_role=<ChatRole.USER: 'user'>, _content={content}, _name=None, _meta={{}})"
    given = f"{{'messages': [{message}], 'streaming_callback': <function <lambda> at 0x7fc6>}}"
    blocks = [{"type": "text_content", "text": "Is <lambda> at 0x7f a 'b'?"}]
    read = {"type": "chat_message", "role": "user", "content": blocks, "name": None, "meta": {}}
    assert parse_repr(given) == {"messages": [read], "streaming_callback": None}


@pytest.mark.parametrize(
    "text",
    [
        "ChatMessage(_role=",
        "ChatMessage(_role=f(1))",
        "ChatMessage(_role=a.b)",
        "ChatMessage(_role=" + "[" * 10_000,
        "ChatMessage(_role=" + "<" * 10_000,
        "ChatMessage(_role='\\d\0')",
        "Hello, ChatMessage(_role='user')",
    ],
)
def test_a_text_that_represents_no_messages_remains_a_text(text):
    assert parse_repr(text) == text
