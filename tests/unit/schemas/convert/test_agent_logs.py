"""Inspect, AgentDojo, Bedrock and the first mini-swe-agent trajectories; what is of no format."""

import copy

import pytest

from knowledgepulse_schemas.convert import ConversionError, Options, convert, source_of
from support.exports import CHAT, DOCUMENTS


def only(document):
    (conversion,) = convert(document)
    assert not isinstance(conversion, ConversionError), conversion
    return conversion


def changed(name, *path, **members):
    """Return a document with members added to the object at a path."""
    document = copy.deepcopy(DOCUMENTS[name])
    place = document
    for step in path:
        place = place[step]
    place.update(members)
    return document


SAMPLE = ("samples", 0)


@pytest.mark.parametrize(
    ("scores", "success", "source"),
    [
        ({"a": {"value": "C"}}, True, "label"),
        ({"a": {"value": "I"}}, False, "label"),
        ({"a": {"value": "N"}}, False, "label"),
        ({"a": {"value": 1.0}, "b": {"value": True}}, True, "label"),
        ({"a": {"value": "C"}, "b": {"value": "I"}}, True, "ended_without_error"),
        ({"a": {"value": "P"}}, True, "ended_without_error"),
        ({"a": {"value": 0.7}}, True, "ended_without_error"),
        ({"a": {"value": {"correct": "C"}}}, True, "ended_without_error"),
        (None, True, "ended_without_error"),
    ],
)
def test_an_inspect_score_is_a_label_if_it_is_a_verdict(scores, success, source):
    conversion = only(changed("inspect", *SAMPLE, scores=scores))

    assert (conversion.trace.metadata.success, conversion.trace.metadata.outcome_source) == (success, source)
    no_verdict = scores is not None and source != "label"
    assert ("samples[].scores without a common verdict" in conversion.losses) is no_verdict


@pytest.mark.parametrize(
    "members",
    [
        {"error": {"message": "sandbox died", "traceback": "x"}},
        {"limit": {"type": "token", "limit": 1}},
        {"output": {"choices": [{"stop_reason": "model_length"}]}},
    ],
)
def test_a_sample_that_was_cut_off_is_not_a_success(members):
    metadata = only(changed("inspect", *SAMPLE, scores=None, **members)).trace.metadata

    assert (metadata.success, metadata.outcome_source) == (False, "structural_failure")


@pytest.mark.parametrize(
    ("document", "native_id", "created_at"),
    [
        (DOCUMENTS["inspect"], "r/t/1/1", "2026-01-01T00:00:01.000Z"),
        (changed("inspect", *SAMPLE, uuid="u", completed_at="2026-01-02T00:00:00Z"), "u", "2026-01-02"),
        (DOCUMENTS["agentdojo"], "gpt/banking/user_task_1/None/None 2026-01-01 00:00:00", "2026-01-01T00:00"),
        (changed("agentdojo", run_id="7"), "7", "2026-01-01T00:00"),
        (DOCUMENTS["bedrock"], "r1", "2026-01-01T00:00:00.000Z"),
        (changed("bedrock", "ResponseMetadata", "HTTPHeaders", date="soon"), "r1", "1970"),
    ],
)
def test_the_native_id_and_the_time_are_the_sources(document, native_id, created_at):
    metadata = only(document).trace.metadata

    assert metadata.native_id == native_id
    assert metadata.created_at.startswith(created_at)


def test_a_failed_tool_of_inspect_answers_with_its_error():
    steps = only(DOCUMENTS["inspect"]).trace.steps

    assert [(step.content, step.tool.name, step.tool_call_id) for step in steps if step.tool] == [
        (None, "weather", "1"),
        ("too slow", "weather", "1"),
    ]


def test_long_texts_of_tool_definitions_are_attachments_of_a_sample():
    (conversion,) = convert(DOCUMENTS["inspect"], options=Options(keep_prompt=True))

    assert conversion.trace.task.tools[0]["description"] == "The weather"


def test_the_input_of_a_sample_is_the_objective_if_its_messages_begin_later():
    document = changed("inspect", *SAMPLE, input="What is the weather?")
    document["samples"][0]["messages"][:2] = []

    assert only(document).trace.task.objective == "What is the weather?"


@pytest.mark.parametrize("members", [{"utility": False}, {"utility": None, "error": "timeout"}])
def test_utility_is_a_label_and_an_error_a_failure(members):
    assert only(changed("agentdojo", **members)).trace.metadata.success is False


def answer(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def test_commands_in_the_texts_of_the_first_mini_swe_agent_are_calls():
    """A text without exactly one command is answered by an error; one without a status timed out."""
    run = "```mswea_bash_command\n{}\n```"
    messages = [
        answer("Fix the division"),
        said(run.format("ls")),
        answer("<returncode>0</returncode>\n<output>\na.py\n</output>"),
        said(run.format("a") + run.format("b")),
        answer("Please always provide EXACTLY ONE action"),
        said(run.format("sleep 99")),
        answer("The last command timed out"),
        said(run.format("submit")),
        answer("diff --git"),
    ]

    for document in (messages, {"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": messages}):
        trace = only(document).trace
        assert source_of(document).name == "mini_swe_agent"
        assert [step.input["command"] for step in trace.steps if step.input] == [
            "ls",
            "sleep 99",
            "submit",
        ]
        assert [step.type for step in trace.steps if step.content and not step.tool] == [
            "thought",
            "thought",
            "observation",
            "error_recovery",
            "error_recovery",
        ]
        assert trace.metadata.outcome_source == "unverified_submission"


CALL = {"id": "1", "function": "weather", "args": {}}
LEFT_OVER = {
    "a role": ([*CHAT, {"role": "wizard", "content": "x"}], r"openai: \[5\]\.role: 'wizard' is none of"),
    "blocks": ([{"role": "user", "content": [{"text": "x"}, {"type": "text"}]}], r"\[0\]\.content.*type"),
    "calls": ([CHAT[1], {"role": "assistant", "tool_calls": [CALL]}], r"\[1\]\.tool_calls\[0\]\.function"),
    "record": ({"messages": [{"role": "user", "content": {"text": "x"}}]}, "openai"),
    "near": ({"version": 2, "eval": {}}, "nearest is inspect: no plan"),
    "far": ({"foo": 1}, "unknown format; accepted are otlp, "),
    "text": ("text", "unknown format; accepted are otlp, "),
}


@pytest.mark.parametrize("what", LEFT_OVER)
def test_a_document_of_no_format_is_told_the_nearest(what):
    """A format is taken for another only if nothing of it is left over."""
    document, message = LEFT_OVER[what]

    (error,) = convert(document)

    assert source_of(document) is None
    with pytest.raises(ConversionError, match=message):
        raise error
