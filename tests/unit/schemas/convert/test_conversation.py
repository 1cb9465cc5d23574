"""The conversation of a run whose tracer recorded each call, with all that was said before it."""

from schemas.convert.hub import (
    Error,
    Message,
    ModelCall,
    Text,
    ToolCall,
    ToolCallResponse,
    ToolRun,
    conversation,
)

ASK = Message("user", (Text("Fix it"),))
CALL = Message("assistant", (ToolCall("shell", {}, "1"),))
ANSWER = Message("tool", (ToolCallResponse("made", "1"),))
DONE = Message("assistant", (Text("Done"),))


def parts(*events):
    return [part for message in conversation(events) for part in message.parts]


def test_only_what_is_new_of_each_calls_input_counts():
    assert conversation(
        [ModelCall((ASK,), (CALL,)), ModelCall((ASK, CALL, ANSWER), (DONE,))],
    ) == [ASK, CALL, ANSWER, DONE]


def test_what_is_said_twice_counts_twice():
    yes = Message("user", (Text("yes"),))

    assert conversation([ModelCall((yes,), (DONE,)), ModelCall((yes, DONE, yes), (DONE,))]) == [
        yes,
        DONE,
        yes,
        DONE,
    ]


def test_calls_that_only_bring_what_is_new_lose_nothing():
    """As with a conversation that the provider keeps."""
    assert conversation([ModelCall((ASK,), (CALL,)), ModelCall((ANSWER,), (DONE,))]) == [
        ASK,
        CALL,
        ANSWER,
        DONE,
    ]


def test_a_tools_run_answers_the_call_of_its_id_once():
    run = ToolRun(ToolCall("shell", {}, "1", mcp_server="local", latency_ms=5), "made")

    assert parts(ModelCall((ASK,), (CALL,)), run, ModelCall((ASK, CALL, ANSWER), (DONE,))) == [
        *ASK.parts,
        ToolCall("shell", {}, "1", mcp_server="local", latency_ms=5),
        ToolCallResponse("made", "1", "shell"),
        *DONE.parts,
    ]


def test_a_tools_run_without_an_id_answers_the_first_open_call_of_its_name():
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


def test_a_response_of_a_tools_run_without_an_id_is_not_repeated_by_the_next_input():
    found = parts(
        ModelCall((ASK,), (CALL,)),
        ToolRun(ToolCall("shell"), "made"),
        ModelCall((ASK, CALL, ANSWER), (DONE,)),
    )

    assert sum(isinstance(part, ToolCallResponse) for part in found) == 1


def test_a_failed_run_flags_the_response_that_is_known_already():
    found = parts(ModelCall((ASK, CALL, ANSWER), (DONE,)), ToolRun(ToolCall("shell", id="1"), failed=True))

    assert ToolCallResponse("made", "1", failed=True) in found


def test_a_failed_call_of_a_model_is_an_error_after_what_it_was_given():
    assert parts(ModelCall((ASK,), error=Error("overloaded"))) == [*ASK.parts, Error("overloaded")]
