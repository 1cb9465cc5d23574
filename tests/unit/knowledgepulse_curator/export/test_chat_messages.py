"""Chat messages and trajectories: valid for others' types and templates, and a trace again when converted."""

from __future__ import annotations

import json
from functools import cache

import msgspec
import pytest
from atif import Trajectory
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from knowledgepulse_convert import convert
from knowledgepulse_curator.export.chat_messages import (
    Conversation,
    chat_of,
    trajectory_of,
    without_tail,
)

ANSWER, REPLY = {"type": "thought", "content": "Done."}, {"type": "observation", "content": "Thank you."}
CALL = {"type": "tool_call", "tool": {"name": "run"}}
RESULT = CALL | {"type": "observation", "content": "ran"}


@cache
def of_openai():
    """Return what OpenAI's client takes as messages and as tools. Others need not import it."""
    from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

    return TypeAdapter(list[ChatCompletionMessageParam]), TypeAdapter(list[ChatCompletionFunctionToolParam])


def conversation(objective, steps, **task):
    return msgspec.convert({"task": {"objective": objective} | task, "steps": steps}, Conversation)


def again(document, source):
    """Return the trace that a converter makes of an exported document."""
    (converted,) = convert(document, source)
    return json.loads(converted.trace.to_json())


def shape(trace, *members):
    """Return the steps as messages tell them: no recoveries, and what is said in a row at once."""
    found = []
    for step in trace["steps"]:
        tool = step.get("tool") or {}
        name = f"mcp__{tool['mcp_server']}__{tool['name']}" if tool.get("mcp_server") else tool.get("name")
        kind = step["type"] if step["type"] == "observation" else "call" if tool else "thought"
        content = step.get("content") or ""
        if kind != "observation" and content.strip():
            before = [found.pop()[1]] if found and found[-1][0] == "thought" else []
            found.append(("thought", "\n\n".join([*before, content])))
        if kind == "thought":
            continue
        called = (name, step.get("input") or {}) if kind == "call" else content
        found.append((kind, called, *(step.get(member) for member in members)))
    return trace["task"]["objective"], found


def checked(value):
    """Convert a trace to both formats, check these, and return it as each of them tells it."""
    trace = json.loads(value)
    read = msgspec.json.decode(value, type=Conversation)
    line = chat_of(trace["id"], read)
    messages, tools = of_openai()
    messages.validate_python(line["messages"], strict=True)
    tools.validate_python(line.get("tools", []), strict=True)
    trajectory = trajectory_of(trace["id"], "an agent", read)
    Trajectory.model_validate(trajectory)
    return again({"messages": line["messages"]}, "openai"), again(trajectory, "atif")


@pytest.mark.slow
def test_the_real_traces_keep_steps_tools_and_order(real_traces):
    for value in real_traces:
        for found in checked(value):
            assert shape(found) == shape(json.loads(value))


words = st.text("abc ", min_size=1).filter(str.strip)
inputs = st.dictionaries(words, words | st.integers() | st.lists(words, max_size=2), max_size=2)
names = st.sampled_from(["search", "mcp__files__read", "run"])


@st.composite
def turns(draw):
    """Steps as runs have them: thoughts, calls at once with their results by id, and what the user said."""
    steps = []
    for number in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["thought", "calls", "reply"]))
        if kind != "calls":
            steps.append({"type": "thought" if kind == "thought" else "observation", "content": draw(words)})
            continue
        called = []
        for index in range(draw(st.integers(1, 3))):
            *server, name = draw(names).removeprefix("mcp__").split("__")
            tool = {"name": name} | ({"mcp_server": server[0]} if server else {})
            called.append({"type": "tool_call", "tool": tool, "tool_call_id": f"id{number}.{index}"})
            steps.append(called[-1] | {"input": draw(inputs)})
        steps += [call | {"type": "observation", "content": draw(words)} for call in called]
    return steps


@given(turns())
def test_any_trace_of_answered_calls_keeps_steps_tools_and_order(steps):
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps)]
    trace = {
        "id": "kp:trace:1",
        "task": {"objective": "Find out why the nightly export drops its last row"},
        "steps": numbered,
    }
    for found in checked(json.dumps(trace).encode()):
        assert shape(found, "tool", "tool_call_id") == shape(trace, "tool", "tool_call_id")


def test_results_go_to_their_calls_and_calls_without_one_are_answered_for_the_format():
    call = {"type": "tool_call", "tool": {"name": "run"}}
    steps = [
        call | {"tool_call_id": "a", "input": {"n": 1}},
        call | {"tool_call_id": "b"},
        {"type": "observation", "content": "of b", "tool": {"name": "run"}, "tool_call_id": "b"},
        {"type": "thought", "content": "Wait."},
        {"type": "observation", "content": "of a", "tool": {"name": "run"}, "tool_call_id": "a"},
        call | {"content": "Now what?", "tool_call_id": "a"},
        {"type": "observation", "content": "By the way", "tool": {"name": "other"}},
        {"type": "error_recovery", "tool": {"name": "run"}},
        {"type": "observation", "output_summary": "shortened"},
        call,
    ]
    line = chat_of("kp:trace:1", conversation("Fix it", steps, system="Be brief.", tools=[{"name": "run"}]))

    told = [
        (message["role"], message["content"], [called["id"] for called in message.get("tool_calls", ())])
        for message in line["messages"]
    ]
    assert line["messages"][5]["reasoning_content"] == "Wait."
    assert told == [
        ("system", "Be brief.", []),
        ("user", "Fix it", []),
        ("assistant", "", ["a", "b"]),
        ("tool", "of a", []),
        ("tool", "of b", []),
        ("assistant", "Now what?", ["a_5"]),
        ("tool", "", []),
        ("user", "By the way", []),
        ("assistant", "", ["call_7"]),
        ("tool", "shortened", []),
        ("assistant", "", ["call_9"]),
    ]
    assert json.loads(line["messages"][2]["tool_calls"][0]["function"]["arguments"]) == {"n": 1}
    assert [tool["function"]["name"] for tool in line["tools"]] == ["run"]


def test_thoughts_before_an_answer_are_its_reasoning():
    """Templates refuse two messages of the assistant in a row, or train the thought as an answer."""
    said = [
        {"type": "thought", "content": text} for text in ("They greet me.", "I greet back.", "Hello!", " ")
    ]
    call = {"type": "tool_call", "tool": {"name": "wave"}}

    line = chat_of("kp:trace:1", conversation("Hi", [*said, call]), weights=True)
    trajectory = trajectory_of("kp:trace:1", "an agent", conversation("Hi", [*said, call]))

    assert [message["role"] for message in line["messages"]] == ["user", "assistant"]
    message = line["messages"][1]
    assert (message["reasoning_content"], message["content"]) == ("They greet me.\n\nI greet back.", "Hello!")
    assert (line["reasons"], len(message["tool_calls"])) == (["", ""], 1)
    assert trajectory["steps"][1]["reasoning_content"] == message["reasoning_content"]
    Trajectory.model_validate(trajectory)


def test_arguments_are_text_or_an_object():
    given = {"seats": [{"row": 4}], "until": None}
    read = conversation("Book it", [{"type": "tool_call", "tool": {"name": "book"}, "input": given}])

    def arguments(**options):
        return chat_of("kp:trace:1", read, **options)["messages"][1]["tool_calls"][0]["function"]["arguments"]

    assert json.loads(arguments()) == arguments(arguments="object") == given


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([ANSWER, REPLY], ["user", "assistant"]),
        ([ANSWER, REPLY, ANSWER], ["user", "assistant", "user", "assistant"]),
        ([ANSWER, CALL, RESULT], ["user", "assistant"]),
        ([REPLY], []),
    ],
)
def test_without_its_tail_a_line_ends_with_the_assistant(steps, kept):
    line = without_tail(chat_of("kp:trace:1", conversation("Do it", steps), weights=True))

    assert [message["role"] for message in line["messages"]] == kept
    assert len(line["reasons"]) == len(kept)
    assert (line["id"], "tools" in line) == ("kp:trace:1", CALL in steps)


def test_a_message_whose_call_failed_or_was_repeated_in_vain_has_the_weight_0():
    """A call that is repeated with another result has not been in vain: it may have waited for something."""

    def call(name, result, **given):
        return [
            {"type": "tool_call", "tool": {"name": name}, "input": given},
            {"type": "observation", "tool": {"name": name}, "content": result},
        ]

    steps = [
        {"type": "thought", "content": "Let me look."},
        *call("status", "pending"),
        *call("status", "done"),
        *call("status", "done"),
        *call("open", "Error: no such file", path="a"),
        *call("open", "content", path="b"),
        {"type": "thought", "content": "It is done."},
    ]

    line = chat_of("kp:trace:1", conversation("Look", steps), weights=True)

    messages, _ = of_openai()
    messages.validate_python(line["messages"])
    said = [
        (message.get("weight"), reason)
        for message, reason in zip(line["messages"], line["reasons"], strict=True)
        if message["role"] == "assistant"
    ]
    assert said == [(1, ""), (1, ""), (0, "repeated"), (0, "failed"), (1, ""), (1, "")]
    assert not any("weight" in message for message in line["messages"] if message["role"] != "assistant")
    plain = chat_of("kp:trace:1", conversation("Look", steps))
    assert "reasons" not in plain
    assert not any("weight" in message for message in plain["messages"])
