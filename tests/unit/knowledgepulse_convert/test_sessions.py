"""What holds for every session log of a coding agent; ``test_conversions`` has the rules of each format."""

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledgepulse_convert import ConversionError, NoRunError, Options, convert, input_format_of
from knowledgepulse_schemas.trace import trace_id_of
from support.conversions import FOLDER, read_cases

NAMES = (
    "claude_code",
    "claude_stream",
    "codex",
    "codex_exec",
    "copilot_cli",
    "cursor_stream",
    "gemini_cli",
    "gemini_stream",
    "opencode",
    "opencode_run",
    "pi",
)
CASES = {name: read_cases(FOLDER / f"{name}.jsonl") for name in NAMES}
DOCUMENTS = {
    name: [case["document"] for case in cases if isinstance(case["document"], list) and case["document"]]
    for name, cases in CASES.items()
}
SESSIONS = {
    name: next(document for document in found if input_format_of(document[0]))
    for name, found in DOCUMENTS.items()
}
TIME = "2026-03-26T00:00:00Z"
FEW = 500
"""Answers of a session. Eight times as many take 64 times as long if the time grows as their square."""


@pytest.mark.parametrize("name", NAMES)
def test_each_line_names_its_format_at_the_start(name):
    assert input_format_of(SESSIONS[name][0]).name == name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lines", [[], ["half a li"], [{"type": "mode", "sessionId": "s"}]])
def test_a_file_without_messages_has_no_run(name, lines):
    [error] = convert(lines, name)

    assert isinstance(error, NoRunError)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "summary", "summary": "Tests", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s1", "content": "Fix"},
        {"type": "system", "subtype": "api_error", "error": {"status": 529}, "uuid": "e", "timestamp": TIME},
        {"type": "attachment", "attachment": {"type": "todo_reminder", "content": []}, "uuid": "a"},
        {"type": "progress", "data": {"type": "bash_progress"}, "uuid": "p"},
        {"type": "user", "message": {"role": "user", "content": [{"no": "type"}]}, "uuid": "bad"},
        {"type": "assistant", "message": "a text", "uuid": "bad"},
        {"type": 3, "uuid": []},
        {"uuid": "none"},
        "not JSON",
        ["a", "list"],
    ],
)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_other_lines_are_losses_and_change_nothing(line, place):
    session = SESSIONS["claude_code"]
    [plain], [odd] = (
        convert(iter(lines), "claude_code") for lines in (session, [*session[:place], line, *session[place:]])
    )

    assert odd.trace == plain.trace
    assert sum(loss.values for loss in odd.losses.values()) > sum(
        loss.values for loss in plain.losses.values()
    )


def test_a_resumed_session_repeats_its_lines():
    session = SESSIONS["claude_code"]

    assert list(convert([*session, *session], "claude_code")) == list(convert(session, "claude_code"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_no_line_makes_a_session_fail(name, data):
    """A member of any line may have any value: what fits is converted, and the trace is valid."""
    lines = json.loads(json.dumps([*SESSIONS[name], *data.draw(st.sampled_from(DOCUMENTS[name]))]))
    target = data.draw(st.sampled_from([line for line in lines[1:] if isinstance(line, dict) and line]))
    while inner := [value for value in target.values() if isinstance(value, dict) and value]:
        if data.draw(st.booleans()):
            break
        target = data.draw(st.sampled_from(inner))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JSON)

    for conversion in convert(iter(lines), name):
        is_error = isinstance(conversion, ConversionError)
        assert not is_error or re.search("objective|no steps|no agent run", str(conversion))


@pytest.mark.slow
def test_the_time_of_a_session_is_in_proportion_to_its_answers():
    """Each answer may repeat what the agent has said so far."""
    answer = {"type": "assistant", "session_id": "s"}

    def seconds(count):
        texts = (f"{number} {'word ' * 500}" for number in range(count))
        messages = [{"role": "assistant", "content": [{"type": "text", "text": text}]} for text in texts]
        document = [*SESSIONS["cursor_stream"], *(answer | {"message": message} for message in messages)]
        before = time.process_time()
        list(convert(document, "cursor_stream"))
        return time.process_time() - before

    seconds(FEW)  # the models of a format are built once

    assert seconds(8 * FEW) < 3 * 8 * min(seconds(FEW) for _ in range(3))


@pytest.mark.parametrize(
    ("agent", "own", "parent"), [("main", "ses_1", None), ("agent-0", "ses_1/agent-0", "ses_1")]
)
def test_the_path_of_a_wire_of_kimi_tells_session_and_subagent(agent, own, parent):
    """Its lines do not: a session that went on was a second trace, and a subagent's had no parent."""
    [case] = [case for case in read_cases(FOLDER / "kimi.jsonl") if "twice" in case["name"]]
    path = f"/home/me/.kimi-code/sessions/wd_shop/ses_1/agents/{agent}/wire.jsonl"

    [conversion] = convert(case["document"], options=Options(path=path))

    assert conversion.metadata.native_id == own
    assert conversion.metadata.parent_id == (parent and trace_id_of(parent))
