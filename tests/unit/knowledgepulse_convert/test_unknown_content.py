"""Formats grow after a release: content of an unknown kind is a suspect loss, an unknown format one error."""

import pytest

from knowledgepulse_convert import Conversion, Losses, convert
from knowledgepulse_convert.common.text_calls import UNREAD

ASK = {"role": "user", "content": "Count the lines of main.py"}
DONE = {"role": "assistant", "content": "It has 42 lines."}


def claude_line(kind, **members):
    return {"type": kind, "uuid": f"{kind}{members}", "parentUuid": None, "sessionId": "s", **members}


def codex_line(kind, **payload):
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


CLAUDE = [claude_line("user", message=ASK), claude_line("assistant", message=DONE)]
CODEX = [
    codex_line("session_meta", id="s"),
    codex_line("response_item", type="message", **ASK),
    codex_line("response_item", type="message", **DONE),
]
GEMINI = {"sessionId": "s", "projectHash": "p"}
GEMINI_MESSAGES = [
    {"id": "1", "type": "user", "content": ASK["content"]},
    {"id": "2", "type": "gemini", "content": DONE["content"]},
]
OPENHANDS = [
    {"kind": "MessageEvent", "id": "1", "llm_message": ASK},
    {"kind": "MessageEvent", "id": "2", "llm_message": DONE},
]
SPOKEN = {"type": "voice", "text": "Count the lines"}


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ([*CLAUDE, claude_line("dictation", message=ASK)], "dictation"),
        ([*CODEX, codex_line("event_msg", type="dictation", message="Go on")], "event_msg.dictation"),
        (
            [*CODEX, codex_line("event_msg", type="item_completed", item=SPOKEN)],
            "event_msg.item_completed.voice",
        ),
        ([*CODEX, codex_line("dictation", text="Go on")], "dictation"),
        (
            [*CODEX, codex_line("response_item", type="dictation", content="Go on")],
            "response_item[].dictation",
        ),
        (
            {**GEMINI, "messages": [*GEMINI_MESSAGES, {"id": "3", "type": "dictation", "content": "Go on"}]},
            "messages[] of type dictation",
        ),
        ([*OPENHANDS, {"kind": "DictationEvent", "id": "3", "text": "Go on"}], "[].DictationEvent"),
        ([ASK, DONE, {"role": "user", "content": [SPOKEN]}], "[].content[].voice"),
        (
            [ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "wc"}, SPOKEN]}],
            "[].content[].voice",
        ),
        (
            [
                ASK,
                DONE,
                {"role": "assistant", "content": "I can write <function=wc></function>, but not run it"},
            ],
            "tool calls in text, in a form that is not known",
        ),
        (
            [
                ASK,
                {"role": "assistant", "content": "I look.\n\n```\nls\n```"},
                {"role": "user", "content": "Tool output: a.py"},
                DONE,
            ],
            "tool calls in text, in a form that is not known",
        ),
        (
            [
                ASK,
                {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "wc"}}]},
                {"role": "tool", "tool_call_id": "1", "content": None, "tool_result_full": "42"},
                DONE,
            ],
            "[] of an empty response",
        ),
        (
            [
                ASK,
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "1", "name": "wc", "input": {}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "toolUseID": "1", "output": "42"}]},
                DONE,
            ],
            "[].content[] of an empty response",
        ),
    ],
)
def test_content_of_an_unknown_kind_is_a_suspect_loss(document, path):
    [conversion] = convert(document)

    assert isinstance(conversion, Conversion), conversion
    assert [name for name, loss in conversion.losses.items() if loss.suspect] == [path]


@pytest.mark.parametrize(
    "document",
    [
        [*CLAUDE, claude_line("progress", message=ASK), claude_line("dictation", level=3)],
        [*CODEX, codex_line("event_msg", type="agent_message", message="Go on")],
        [*CODEX, codex_line("event_msg", type="dictation", volume=3)],
        [*OPENHANDS, {"kind": "CondensationRequest", "id": "3", "text": "Go on"}],
        [ASK, DONE, {"role": "user", "content": [{"type": "image_url", "text": "x"}]}],
        [ASK, {"role": "assistant", "content": '{"action": "Buy two of them", "params": {"price": 3}}'}],
    ],
)
def test_known_kinds_and_kinds_without_content_are_not_suspect(document):
    [conversion] = convert(document)

    assert not any(loss.suspect for loss in conversion.losses.values())


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("I look.\n<read_file>\n<path>a.py</path>\n</read_file>", "The file is empty"),
        ("I look into it", "[read_file for 'a.py'] Result:\n42"),
        ('<function_calls>\nget_temp(city="Oslo")\n</function_calls>', "4"),
        ("THOUGHT: look\n\n```mswea_bash_command\nls\n```", "a.py"),
        ("I should look. <search> temperature Oslo </search>", "4"),
        ("I should look", "<information>4</information>"),
        ('<<function>>get_temp(city="Oslo")', "4"),
        ('Call: get_temp(city="Oslo")<bot_end>', "4"),
        ('{"command": "ls"}', "a.py"),
        ('```json\n{"thought": "look", "action": "click", "element": "e"}\n```', "done"),
    ],
)
def test_calls_in_text_of_other_forms_are_suspect(call, answer):
    said = [{"role": "assistant", "content": call}, {"role": "user", "content": answer}]

    [conversion] = convert([ASK, *said, DONE])

    assert [path for path, loss in conversion.losses.items() if loss.suspect] == [UNREAD]


@pytest.mark.parametrize(
    "answer",
    ['{"command": "ls"}', '{"action": "click"}', 'Write this:\n```json\n{"x": {"command": "ls"}}\n```'],
)
def test_json_that_may_be_an_answer_is_not_suspect(answer):
    [last] = convert([ASK, {"role": "assistant", "content": answer}])
    [nested] = convert(
        [
            ASK,
            {"role": "assistant", "content": f"Here: {answer}"},
            {"role": "user", "content": "Thanks"},
            DONE,
        ]
    )

    assert not any(loss.suspect for loss in (*last.losses.values(), *nested.losses.values()))


def test_a_suspect_loss_stays_suspect_in_a_total():
    total, losses = Losses(), Losses()
    losses.add_unknown("line", {"text": "Go on"})
    total.add("line", "x")
    total.merge(losses)

    assert total["line"].suspect
