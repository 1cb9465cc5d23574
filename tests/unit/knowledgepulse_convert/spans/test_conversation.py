"""Rebuilding a conversation from calls whose inputs repeat it."""

import pytest

from knowledgepulse_convert.common.hub import Message, Text, ToolCall, ToolCallResponse
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.spans.conversation import ModelCall, ToolRun, conversation

ASK = Message("user", (Text("Fix it"),))
CALL = Message("assistant", (ToolCall("shell", {}, "1"),))
ANSWER = Message("tool", (ToolCallResponse("made", "1"),))
DONE = Message("assistant", (Text("Done"),))


def parts(*events):
    return [part for message in conversation(events) for part in message.parts]


def test_a_text_said_twice_is_kept_twice():
    yes = Message("user", (Text("yes"),))

    assert conversation([ModelCall((yes,), (DONE,)), ModelCall((yes, DONE, yes), (DONE,))]) == [
        yes,
        DONE,
        yes,
        DONE,
    ]


def test_a_tool_execution_answers_the_call_with_its_id_once():
    run = ToolRun(ToolCall("shell", {}, "1", mcp_server="local", latency_ms=5), "made")

    assert parts(ModelCall((ASK,), (CALL,)), run, ModelCall((ASK, CALL, ANSWER), (DONE,))) == [
        *ASK.parts,
        ToolCall("shell", {}, "1", mcp_server="local", latency_ms=5),
        ToolCallResponse("made", "1", "shell"),
        *DONE.parts,
    ]


def test_a_tool_execution_without_an_id_answers_the_first_open_call_of_its_tool():
    calls = Message("assistant", (ToolCall("a", id="1"), ToolCall("b", id="2"), ToolCall("b", id="3")))

    found = parts(
        ModelCall((ASK,), (calls,)),
        ToolRun(ToolCall("b"), "first"),
        ToolRun(ToolCall("b"), "second"),
        ToolRun(ToolCall("c"), "of no call"),
    )

    assert [part.name for part in found if isinstance(part, ToolCall)] == ["a", "b", "b", "c"]
    assert [part.response for part in found if isinstance(part, ToolCallResponse)] == [
        "first",
        "second",
        "of no call",
    ]


def test_the_response_of_a_tool_execution_without_an_id_is_not_duplicated():
    found = parts(
        ModelCall((ASK,), (CALL,)),
        ToolRun(ToolCall("shell"), "made"),
        ModelCall((ASK, CALL, ANSWER), (DONE,)),
    )

    assert sum(isinstance(part, ToolCallResponse) for part in found) == 1


def test_a_failed_tool_execution_flags_an_existing_response():
    found = parts(ModelCall((ASK, CALL, ANSWER), (DONE,)), ToolRun(ToolCall("shell", id="1"), failed=True))

    assert ToolCallResponse("made", "1", failed=True) in found


def turn(identity, answer):
    """A tool call with an id, and its answer."""
    call = Message("assistant", (ToolCall("shell", {"make": answer}, identity),))
    return call, Message("tool", (ToolCallResponse(answer, identity, "shell"),))


@pytest.mark.parametrize("identities", [("1", "2"), ("call_0", "call_0"), ("", ""), (None, None)])
def test_ids_that_are_reused_or_missing_repeat_nothing_and_lose_nothing(identities):
    """Some servers begin to number at every turn, some tracers write empty ids."""
    (first, one), (second, two) = turn(identities[0], "one"), turn(identities[1], "two")

    assert conversation(
        [
            ModelCall((ASK,), (first,)),
            ModelCall((ASK, first, one), (second,)),
            ModelCall((ASK, first, one, second, two), (DONE,)),
        ]
    ) == [ASK, first, one, second, two, DONE]


def test_agents_that_each_number_their_calls_from_one_keep_their_answers():
    other = Message("user", (Text("Test it"),))
    (first, one), (second, two) = turn("1", "one"), turn("1", "two")

    assert conversation(
        [
            ModelCall((ASK,), (first,)),
            ModelCall((ASK, first, one), (DONE,)),
            ModelCall((other,), (second,)),
            ModelCall((other, second, two), (DONE,)),
        ]
    ) == [ASK, first, one, DONE, other, second, two, DONE]


def test_executions_with_a_reused_id_answer_one_call_each():
    calls = [Message("assistant", (ToolCall("shell", {}, "1"),)) for _ in range(2)]

    found = parts(
        ModelCall((ASK,), (calls[0],)),
        ToolRun(ToolCall("shell", id="1"), "first"),
        ModelCall((ASK, calls[0]), (calls[1],)),
        ToolRun(ToolCall("shell", id="1"), "second", failed=True),
    )

    assert [(part.response, part.failed) for part in found if isinstance(part, ToolCallResponse)] == [
        ("first", False),
        ("second", True),
    ]


def called(identity, answer_identity, answer, arguments=None):
    """A call with an id, and its answer with another."""
    call = Message("assistant", (ToolCall("shell", arguments or {}, identity),))
    return call, Message("tool", (ToolCallResponse(answer, answer_identity),))


def test_a_call_with_other_ids_in_its_response_and_its_execution_is_one():
    call, answer = called("item", "call", "made")

    found = parts(
        ModelCall((ASK,), (call,)),
        ToolRun(ToolCall("shell", {}, "span"), "made"),
        ModelCall((ASK, call, answer), (DONE,)),
    )

    assert found == [*ASK.parts, *call.parts, ToolCallResponse("made", "item", "shell"), *DONE.parts]


def test_an_input_repeats_a_call_under_the_id_that_its_output_did_not_have():
    (first, _), (again, answer) = called("call", None, ""), called("item", "call", "made")
    (second, _), (other, _) = called("call 2", None, ""), called("item 2", None, "")

    assert parts(
        ModelCall((ASK,), (first,)),
        ModelCall((ASK, again, answer), (second,)),
        ModelCall((ASK, again, answer, other), (DONE,)),
    ) == [*ASK.parts, *first.parts, *answer.parts, *second.parts, *DONE.parts]


def test_the_response_of_a_tool_is_what_the_model_saw():
    losses = Losses()
    events = [
        ModelCall((ASK,), (CALL,)),
        ToolRun(ToolCall("shell", id="1"), "Traceback: no rule", failed=True),
        ModelCall((ASK, CALL, ANSWER), (DONE,)),
    ]

    messages = conversation(events, losses=losses)

    assert messages[2] == Message("tool", (ToolCallResponse("made", "1", "shell", failed=True),))
    assert losses["responses in other words than the model's"].characters == len("Traceback: no rule")


def test_executions_without_content_are_a_call_each():
    found = parts(*(ToolRun(ToolCall("shell")) for _ in range(3)))

    assert found == [ToolCall("shell")] * 3
