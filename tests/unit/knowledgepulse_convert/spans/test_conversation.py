"""Rebuilding a conversation from calls whose inputs repeat it."""

import pytest

from knowledgepulse_convert.common.ir import Message, Text, ToolCall, ToolCallResponse
from knowledgepulse_convert.spans.conversation import ModelCall, ToolRun, conversation

ASK = Message("user", (Text("Fix it"),))
CALL = Message("assistant", (ToolCall("shell", {}, "1"),))
ANSWER = Message("tool", (ToolCallResponse("made", "1"),))
DONE = Message("assistant", (Text("Done"),))


def parts(*events):
    return [part for message in conversation(events) for part in message.parts]


def responses(found):
    return [(part.id, part.response) for part in found if isinstance(part, ToolCallResponse)]


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
    assert responses(found) == [("2", "first"), ("3", "second"), (None, "of no call")]


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


CALLS = Message("assistant", (ToolCall("shell", {"n": 1}, "item 1"), ToolCall("shell", {"n": 2}, "item 2")))
RENAMED = Message("assistant", (ToolCall("shell", {"n": 1}, "call 1"), ToolCall("shell", {"n": 2}, "call 2")))
ANSWERS = Message("tool", (ToolCallResponse("two", "call 2"), ToolCallResponse("one", "call 1")))


@pytest.mark.parametrize(
    "events",
    [
        [ToolRun(ToolCall("shell", id="item 2"), "two"), ToolRun(ToolCall("shell", id="item 1"), "one")],
        [ModelCall((ASK, RENAMED, ANSWERS), (DONE,))],
        [
            ModelCall((ASK, CALLS, Message("tool", ANSWERS.parts[::-1])), (DONE,)),
            ToolRun(ToolCall("shell", id="call 2"), "two"),
        ],
    ],
)
def test_calls_of_a_tool_at_once_keep_their_responses_by_ids_in_whatever_order(events):
    """The Responses API has ids of its items, and others of their calls."""
    found = parts(ModelCall((ASK,), (CALLS,)), *events)

    assert sorted(responses(found)) == [("item 1", "one"), ("item 2", "two")]
    assert sum(isinstance(part, ToolCall) for part in found) == 2


@pytest.mark.parametrize(
    ("results", "retold", "kept"),
    [
        (("one", "two"), ["Observation: one\ntwo"], ("one", "two")),
        (("ok", "ok"), ["Observation: ok"] * 2, ("Observation: ok", "Observation: ok")),
    ],
)
def test_responses_that_an_input_retells_as_texts_are_told_once(results, retold, kept):
    """As smolagents does; those of several calls in one text keep the words of their spans."""
    runs = [ToolRun(ToolCall("shell", id=f"item {n}"), result) for n, result in enumerate(results, 1)]
    texts = [Message("tool", (ToolCallResponse(text),)) for text in retold]

    found = parts(ModelCall((ASK,), (CALLS,)), *runs, ModelCall((ASK, *texts), (DONE,)))

    assert responses(found) == [("item 1", kept[0]), ("item 2", kept[1])]
