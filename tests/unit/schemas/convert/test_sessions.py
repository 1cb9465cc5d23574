"""Session logs of coding agents: Claude Code, Codex, Gemini CLI, OpenCode."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_schemas.convert import (
    ConversionError,
    NoRunError,
    Options,
    convert,
    from_claude_code,
    from_codex,
    from_gemini_cli,
    from_opencode,
    source_of,
)

TIME = "2026-03-25T02:17:20.880Z"


def steps(conversion):
    return [
        (step.type, step.content if step.content is not None else step.tool.name)
        for step in conversion.trace.steps
    ]


def metadata(conversion):
    return conversion.trace.metadata.model_dump(exclude_unset=True)


# Claude Code ----------------------------------------------------------------------------------------------


def claude(kind, content, uuid=None, **members):
    """Return a line of a session; an answer's members of its message begin with ``m_``."""
    message = {"role": kind, "content": content, **{k[2:]: v for k, v in members.items() if k[:2] == "m_"}}
    outer = {name: value for name, value in members.items() if name[:2] != "m_"}
    line = {"type": kind, "parentUuid": None, "sessionId": "s1", "isSidechain": False, "timestamp": TIME}
    return line | {"uuid": uuid or json.dumps(content), "cwd": "/home/me/shop", "message": message} | outer


def use(name="Bash", call_id="toolu_1", **arguments):
    return [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]


def result(content="ok", call_id="toolu_1", **members):
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content, **members}]


ASK = claude("user", "Fix the tests")
CALL = claude("assistant", use(command="pytest"), m_id="msg_1", m_model="claude-a")
RESULT = claude("user", result(), toolUseResult={"stdout": "ok"})
DONE = claude("assistant", [{"type": "text", "text": "All pass"}], m_model="claude-b")
SESSION = [ASK, CALL, RESULT, DONE]
DONE_STEPS = [("tool_call", "Bash"), ("observation", "ok"), ("thought", "All pass")]


def test_a_claude_code_session_is_a_run():
    [conversion] = from_claude_code(SESSION)

    assert conversion.trace.task.objective == "Fix the tests"
    assert steps(conversion) == DONE_STEPS
    assert conversion.trace.outcome.result_summary == "All pass"
    assert metadata(conversion) | {
        "native_id": "s1",
        "created_at": "2026-03-25T02:17:20.880Z",
        "success": True,
        "models": ["claude-a", "claude-b"],
        "framework": "claude_code",
    } == metadata(conversion)
    assert conversion.losses["user.toolUseResult"].characters == 2


@pytest.mark.parametrize(
    "line",
    [
        {"type": "summary", "summary": "Tests", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s1", "content": "Fix"},
        {"type": "system", "subtype": "compact_boundary", "content": "Compacted", "uuid": "c"},
        {"type": "system", "subtype": "api_error", "error": {"status": 529}, "uuid": "e", "timestamp": TIME},
        {"type": "attachment", "attachment": {"type": "todo_reminder", "content": []}, "uuid": "a"},
        {"type": "progress", "data": {"type": "bash_progress"}, "uuid": "p"},
        {"type": "invented", "text": "who knows"},
        {"type": "user", "message": {"role": "user", "content": [{"no": "type"}]}, "uuid": "bad"},
        {"type": "assistant", "message": "a text", "uuid": "bad"},
        {"type": 3, "uuid": []},
        {"uuid": "none"},
        "not JSON",
        ["a", "list"],
        ASK,  # a resumed session repeats its lines
    ],
)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_other_lines_are_losses_and_change_nothing(line, place):
    lines = [*SESSION[:place], line, *SESSION[place:]]
    [conversion] = convert(iter(lines), "claude_code")

    assert steps(conversion) == DONE_STEPS
    assert line is ASK or sum(loss.values for loss in conversion.losses.values()) > sum(
        loss.values for loss in from_claude_code(SESSION)[0].losses.values()
    )


@pytest.mark.parametrize(
    "content",
    [
        "<command-name>/clear</command-name>\n<command-message>clear</command-message>",
        "<local-command-stdout>Bye</local-command-stdout>",
        "<bash-input>git pull</bash-input>",
        "<task-notification>\n<status>completed</status>",
        [{"type": "text", "text": "<ide_opened_file>a.py</ide_opened_file>"}],
    ],
)
def test_notices_of_claude_code_are_no_requests(content):
    [conversion] = from_claude_code([claude("user", content), *SESSION])

    assert conversion.trace.task.objective == "Fix the tests"
    assert steps(conversion) == DONE_STEPS
    assert conversion.losses["system text"].values == 1


@pytest.mark.parametrize("flag", ["isMeta", "isCompactSummary"])
def test_texts_that_are_not_the_users_are_system_text(flag):
    [conversion] = from_claude_code([claude("user", "Caveat: …", **{flag: True}), *SESSION])

    assert conversion.trace.task.objective == "Fix the tests"


def test_a_command_with_a_prompt_is_a_request():
    tags = {"message": "review", "name": "/review", "args": "12"}
    text = "\n".join(f"<command-{name}>{value}</command-{name}>" for name, value in tags.items())
    [conversion] = from_claude_code([claude("user", text), *SESSION[1:]])

    assert conversion.trace.task.objective == "/review 12"


def test_a_built_in_command_is_a_request_if_there_is_no_other():
    goal = "<command-name>/goal</command-name>\n<command-args>Simplify</command-args>"
    [alone] = from_claude_code([claude("user", goal), *SESSION[1:]])
    [other] = from_claude_code([claude("user", goal), *SESSION])

    assert "Simplify" in alone.trace.task.objective
    assert other.trace.task.objective == "Fix the tests"


def test_what_the_user_writes_meanwhile_is_kept():
    queued = {"type": "queued_command", "prompt": "And lint", "commandMode": "prompt"}
    line = {"type": "attachment", "attachment": queued, "uuid": "q", "parentUuid": "x", "sessionId": "s1"}
    [conversion] = from_claude_code([*SESSION[:3], line, DONE])

    assert ("observation", "And lint") in steps(conversion)


INTERRUPTED = claude("user", [{"type": "text", "text": "[Request interrupted by user]"}])


@pytest.mark.parametrize(
    ("lines", "success", "kinds"),
    [
        (SESSION, True, "tool_call observation thought"),
        ([ASK, CALL, RESULT, INTERRUPTED], False, "tool_call observation observation"),
        ([ASK, CALL, RESULT, INTERRUPTED, DONE], True, "tool_call observation observation thought"),
        ([ASK, CALL], False, "tool_call"),
        ([ASK, CALL, RESULT], False, "tool_call observation"),
        (
            [ASK, CALL, claude("user", result(is_error=True)), DONE],
            True,
            "tool_call observation error_recovery",
        ),
        ([ASK, DONE | {"isApiErrorMessage": True, "uuid": "e"}], False, "observation"),
        ([ASK, claude("assistant", "Half", m_id="1", m_stop_reason="max_tokens")], False, "thought"),
        ([ASK, claude("user", result("late", "gone")), DONE], True, "observation thought"),
    ],
)
def test_a_claude_code_session_ended_as_its_lines_say(lines, success, kinds):
    [conversion] = from_claude_code(lines)

    assert conversion.trace.metadata.success is success
    assert [step.type for step in conversion.trace.steps] == kinds.split()


def test_an_answer_that_was_cut_off_fails_once_after_its_last_line():
    """Each block of an answer has a line of its own, which repeats why the answer ended."""
    cut = {"m_id": "1", "m_stop_reason": "max_tokens"}
    blocks = [[{"type": "thinking", "thinking": "Hm"}], [{"type": "text", "text": "Half"}]]
    [conversion] = from_claude_code([ASK, *(claude("assistant", block, **cut) for block in blocks), DONE])

    assert steps(conversion) == [("thought", "Hm"), ("thought", "Half"), ("error_recovery", "All pass")]


def sidechain(*lines, **members):
    return [line | {"isSidechain": True, "uuid": f"side {line['uuid']}", **members} for line in lines]


def test_subagents_are_runs_of_their_own_linked_to_their_parent():
    with_id = sidechain(claude("user", "Search"), DONE, agentId="a7")
    root, answer = sidechain(claude("user", "Plan the work"), DONE | {"uuid": "2"})
    chained = [root, answer | {"parentUuid": root["uuid"]}]
    main, search, plan = from_claude_code([ASK, CALL, *with_id, *chained, RESULT, DONE])

    assert steps(main) == DONE_STEPS
    assert search.trace.task.objective == "Search"
    assert metadata(search)["native_id"] == "s1/a7"
    assert plan.trace.task.objective == "Plan the work"
    assert {metadata(search)["parent_id"], metadata(plan)["parent_id"]} == {main.trace.id}


def test_what_is_left_of_a_sidechain_is_a_loss():
    [main] = from_claude_code([*sidechain(RESULT, DONE, parentUuid="gone"), *SESSION])

    assert steps(main) == DONE_STEPS
    assert main.losses["sidechains without their request"].values == 2


def test_a_subagents_own_file_is_linked_to_its_session():
    [own] = from_claude_code([{"type": "invented", "x": "y"}, *sidechain(*SESSION, agentId="a7")])
    [main] = from_claude_code(SESSION)

    assert metadata(own)["parent_id"] == main.trace.id
    assert own.losses["invented"].values == 1


# Codex ----------------------------------------------------------------------------------------------------


def codex(kind, payload):
    return {"timestamp": TIME, "type": kind, "payload": payload}


def item(kind, **members):
    return codex("response_item", {"type": kind, **members})


def message(role, text, **members):
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}], **members)


def event(kind, **members):
    return codex("event_msg", {"type": kind, **members})


META = codex("session_meta", {"id": "019a", "cwd": "/home/me/shop", "instructions": "Be brief"})
TURN = codex("turn_context", {"model": "gpt-5-codex", "cwd": "/home/me/shop"})
SHELL = item("function_call", name="shell", arguments='{"cmd": "ls"}', call_id="call_1")
OUTPUT = item("function_call_output", call_id="call_1", output="a.py")
CODEX = [
    META,
    message("user", "<environment_context>…"),
    message("user", "Fix the tests"),
    event("user_message", message="Fix the tests"),
    TURN,
    item("reasoning", summary=[{"type": "summary_text", "text": "Look"}], encrypted_content="x"),
    event("agent_reasoning", text="Look"),
    SHELL,
    event("exec_command_end", call_id="call_1", exit_code=0, duration={"secs": 0, "nanos": 5}),
    OUTPUT,
    event("agent_message", message="All pass"),
    message("assistant", "All pass"),
    event("task_complete", last_agent_message="All pass"),
]
CODEX_STEPS = [("thought", "Look"), ("tool_call", "shell"), ("observation", "a.py"), ("thought", "All pass")]
BARE = [
    {"id": "019a", "timestamp": TIME, "instructions": None},
    *(line["payload"] for line in CODEX if line["type"] == "response_item"),
    {"record_type": "state"},
]


@pytest.mark.parametrize(
    "lines", [CODEX, BARE, {"session": BARE[0], "items": BARE[1:-1]}], ids=["events", "bare items", "object"]
)
def test_a_codex_session_of_any_layout_is_a_run(lines):
    assert source_of(lines).name == "codex"
    conversion = from_codex(lines)

    assert conversion.trace.task.objective == "Fix the tests"
    assert steps(conversion) == CODEX_STEPS
    assert metadata(conversion)["native_id"] == "019a"
    assert conversion.trace.metadata.success is True
    assert conversion.losses["system text"].characters == len("<environment_context>…")


def test_a_codex_session_keeps_its_models_and_counts_the_rest():
    conversion = from_codex([*CODEX, event("future", note="a"), codex("compacted", {"message": "bc"})])

    assert metadata(conversion)["models"] == ["gpt-5-codex"]
    assert conversion.losses["event_msg.future"].characters == len("futurea")
    assert conversion.losses["compacted"].characters == 2


@pytest.mark.parametrize(
    ("output", "ends", "failed", "text"),
    [
        ("a.py", [], False, "a.py"),
        ('{"output": "no", "metadata": {"exit_code": 1}}', [], True, "no"),
        ("Exit code: 2\nWall time: 0 seconds\nOutput:\nno", [], True, None),
        ("Chunk ID: 0a\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\n", [], True, None),
        ("Chunk ID: 0a\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n", [], False, None),
        ("the text Exit code: 2\n", [], False, None),
        ("a.py", [event("exec_command_end", call_id="call_1", exit_code=1)], True, "a.py"),
        ("a.py", [event("patch_apply_end", call_id="call_1", success=False)], True, "a.py"),
        ("a.py", [event("mcp_tool_call_end", call_id="call_1", result={"Err": "no"})], True, "a.py"),
    ],
)
@pytest.mark.parametrize("event_first", [True, False])
def test_codex_calls_fail_by_their_exit_codes(output, ends, failed, text, event_first):
    response = item("function_call_output", call_id="call_1", output=output)
    between = [*ends, response] if event_first else [response, *ends]
    conversion = from_codex([META, message("user", "Fix it"), SHELL, *between, message("assistant", "Done")])

    assert [step.type for step in conversion.trace.steps][-1] == ("error_recovery" if failed else "thought")
    assert conversion.trace.steps[1].content == (output if text is None else text)


def test_the_ends_of_codex_calls_tell_duration_and_server():
    end = event(
        "mcp_tool_call_end",
        call_id="call_1",
        duration={"secs": 1, "nanos": 500_000_000},
        invocation={"server": "github", "tool": "x"},
    )
    step = from_codex([META, message("user", "Fix it"), SHELL, end, OUTPUT]).trace.steps[0]

    assert (step.latency_ms, step.tool.mcp_server) == (1500, "github")


@pytest.mark.parametrize(
    ("lines", "success"),
    [
        (CODEX, True),
        (CODEX[:-1], True),
        (CODEX[:-3], False),
        ([*CODEX[:-3], event("turn_aborted", reason="interrupted")], False),
        ([*CODEX[:-2], message("assistant", "Now I look", phase="commentary")], False),
        ([*CODEX[:-2], message("assistant", "Fixed", phase="final_answer")], True),
        ([*CODEX[:-2], event("error", message="usage limit")], False),
    ],
)
def test_a_codex_session_ended_as_its_lines_say(lines, success):
    assert from_codex(lines).trace.metadata.success is success


def test_a_codex_subagents_file_begins_with_a_copy_of_its_parents():
    spawn = {"parent_thread_id": "019a", "agent_role": "explorer"}
    own = codex("session_meta", {"id": "019b", "source": {"subagent": {"thread_spawn": spawn}}})
    copied = [META, event("task_started", turn_id="019a1"), *CODEX[1:]]
    turn = [
        event("task_started", turn_id="019b1"),
        message("user", "Look for bugs"),
        event("user_message", message="Look for bugs"),
    ]
    conversion = from_codex([own, *copied, *turn, message("assistant", "None")])

    assert conversion.trace.task.objective == "Look for bugs"
    assert steps(conversion) == [("thought", "None")]
    assert metadata(conversion)["parent_id"] == from_codex(CODEX).trace.id
    assert metadata(conversion)["agent_id"] == "explorer"


def test_what_another_codex_agent_writes_is_a_request():
    content = [{"type": "input_text", "text": "Look for bugs"}, {"type": "encrypted_content", "text": "x"}]
    told = item("agent_message", author="/root", recipient="/root/a", content=content)

    assert from_codex([META, told, message("assistant", "None")]).trace.task.objective == "Look for bugs"


def test_codex_patches_and_searches_are_calls():
    conversion = from_codex(
        [
            META,
            message("user", "Fix it"),
            item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="1", status="completed"),
            item("web_search_call", status="completed", action={"type": "search", "query": "q"}),
            item("tool_search_call", call_id="2", arguments={"query": "github"}, execution="client"),
            item("tool_search_output", call_id="2", tools=[{"name": "pr"}]),
            message("assistant", "Done"),
        ]
    )

    calls = [(step.tool.name, step.input) for step in conversion.trace.steps if step.type == "tool_call"]
    assert calls == [
        ("apply_patch", {"raw": "*** Begin"}),
        ("web_search", {"action": {"type": "search", "query": "q"}}),
        ("tool_search", {"query": "github"}),
    ]


# Gemini CLI -----------------------------------------------------------------------------------------------


def gemini(kind, content, message_id, **members):
    return {"id": message_id, "timestamp": TIME, "type": kind, "content": content, **members}


def gemini_call(status="success", **response):
    answer = [{"functionResponse": {"id": "c1", "name": "ls", "response": response or {"output": "a.py"}}}]
    return {"id": "c1", "name": "ls", "args": {"dir": "."}, "result": answer, "status": status}


THOUGHT = {"subject": "Look", "description": "at files", "timestamp": TIME}
GEMINI = [
    gemini("user", [{"text": "Fix the tests"}], "1"),
    gemini("gemini", "I look", "2", thoughts=[THOUGHT], toolCalls=[gemini_call()], model="gemini-3"),
    gemini("info", "Update available", "3"),
    gemini("gemini", "All pass", "4", model="gemini-3"),
]
GEMINI_HEAD = {"sessionId": "g1", "projectHash": "0b", "startTime": TIME, "lastUpdated": TIME}
GEMINI_STEPS = [
    ("thought", "Look\nat files"),
    ("thought", "I look"),
    ("tool_call", "ls"),
    ("observation", "a.py"),
    ("thought", "All pass"),
]


@pytest.mark.parametrize(
    "document",
    [
        GEMINI_HEAD | {"messages": GEMINI},
        [GEMINI_HEAD, *GEMINI],
        [GEMINI_HEAD, GEMINI[0], gemini("gemini", "", "2"), *GEMINI[1:], {"$set": {"lastUpdated": TIME}}],
        [GEMINI_HEAD, *GEMINI, gemini("user", "Wrong", "5"), {"$rewindTo": "5"}],
        [GEMINI_HEAD, gemini("user", "Wrong", "5"), {"$set": {"messages": GEMINI}}],
    ],
    ids=["object", "lines", "replaced", "taken back", "set"],
)
def test_a_gemini_session_is_a_run(document):
    assert source_of(document).name == "gemini_cli"
    conversion = from_gemini_cli(document)

    assert conversion.trace.task.objective == "Fix the tests"
    assert steps(conversion) == GEMINI_STEPS
    assert (metadata(conversion)["native_id"], metadata(conversion)["models"]) == ("g1", ["gemini-3"])
    assert conversion.losses["messages[] of type info"].values == 1


@pytest.mark.parametrize(
    ("messages", "kinds"),
    [
        (
            [gemini("gemini", "", "2", toolCalls=[gemini_call("error", error="no")]), GEMINI[3]],
            "observation error_recovery",
        ),
        (
            [gemini("gemini", "", "2", toolCalls=[gemini_call("cancelled")]), GEMINI[3]],
            "observation error_recovery",
        ),
        ([gemini("error", "API error", "2"), GEMINI[3]], "observation error_recovery"),
        ([gemini("user", "/help", "2"), GEMINI[3]], "thought"),
    ],
)
def test_gemini_failures_are_flagged(messages, kinds):
    conversion = from_gemini_cli(GEMINI_HEAD | {"messages": [GEMINI[0], *messages]})

    assert [step.type for step in conversion.trace.steps if step.type != "tool_call"] == kinds.split()


# OpenCode -------------------------------------------------------------------------------------------------


def opencode(role, message_id, *parts, **members):
    info = {
        "id": message_id,
        "sessionID": "ses_1",
        "role": role,
        "time": {"created": 1774000000000},
        **members,
    }
    places = {"sessionID": "ses_1", "messageID": message_id}
    return {
        "info": info,
        "parts": [{"id": f"{message_id}{n}", **places, **part} for n, part in enumerate(parts)],
    }


def tool(status="completed", **state):
    base = {"status": status, "input": {"command": "ls"}, "time": {"start": 1000, "end": 1250}, **state}
    return {"type": "tool", "callID": "call_1", "tool": "bash", "state": base}


def text(content, **members):
    return {"type": "text", "text": content, **members}


INFO = {
    "id": "ses_1",
    "projectID": "p",
    "directory": "/home/me/shop",
    "title": "Tests",
    "time": {"created": 1},
}
OPENCODE = [
    opencode("user", "m1", text("Fix the tests"), text("Called the Read tool", synthetic=True)),
    opencode(
        "assistant",
        "m2",
        {"type": "step-start", "snapshot": "e60c"},
        tool(output="a.py"),
        modelID="glm-5",
        finish="tool-calls",
    ),
    opencode("assistant", "m3", {"type": "reasoning", "text": "Good"}, text("All pass"), finish="stop"),
]
OPENCODE_STEPS = [
    ("tool_call", "bash"),
    ("observation", "a.py"),
    ("thought", "Good"),
    ("thought", "All pass"),
]
STORAGE = [*(part for one in reversed(OPENCODE) for part in (*one["parts"][::-1], one["info"])), INFO]


@pytest.mark.parametrize(
    "document", [{"info": INFO, "messages": OPENCODE}, STORAGE], ids=["export", "storage"]
)
def test_an_opencode_session_is_a_run(document):
    assert source_of(document).name == "opencode"
    [conversion] = from_opencode(document)

    assert conversion.trace.task.objective == "Fix the tests"
    assert steps(conversion) == OPENCODE_STEPS
    assert conversion.trace.steps[0].latency_ms == 250
    assert metadata(conversion)["native_id"] == "ses_1"
    assert conversion.losses["system text"].values == 1
    assert conversion.losses["messages[].parts[] of type step-start"].values == 1


def test_opencode_subagents_are_linked_to_their_parent():
    child = {"info": INFO | {"id": "ses_2", "parentID": "ses_1"}, "messages": OPENCODE}
    parent, own = from_opencode([{"info": INFO, "messages": OPENCODE}, child])

    assert metadata(own)["parent_id"] == parent.trace.id


@pytest.mark.parametrize(
    ("last", "success"),
    [
        (opencode("assistant", "m4", text("Done")), True),
        (opencode("assistant", "m4", tool("error", error="no")), False),
        (opencode("assistant", "m4", tool("running")), False),
        (opencode("assistant", "m4", error={"name": "MessageAbortedError", "data": {"message": "x"}}), False),
        (opencode("assistant", "m4", error={"name": "APIError", "data": {"message": "x"}}), False),
        (opencode("assistant", "m4", text("Hal"), finish="length"), False),
    ],
)
def test_an_opencode_session_ended_as_its_messages_say(last, success):
    [conversion] = from_opencode({"info": INFO, "messages": [*OPENCODE, last]})

    assert conversion.trace.metadata.success is success


# All ------------------------------------------------------------------------------------------------------

SESSIONS = {"claude_code": SESSION, "codex": CODEX, "gemini_cli": [GEMINI_HEAD, *GEMINI], "opencode": STORAGE}


@pytest.mark.parametrize("name", SESSIONS)
def test_each_line_names_its_format_at_the_start(name):
    assert source_of(SESSIONS[name][0]).name == name


@pytest.mark.parametrize("name", SESSIONS)
def test_requests_are_traces_of_their_own_that_lead_to_the_session(name):
    again = {
        "claude_code": [
            claude("user", "Now lint it all"),
            DONE | {"uuid": "2", "timestamp": "2026-03-26T00:00:00Z"},
        ],
        "codex": [event("user_message", message="Now lint it all"), message("assistant", "Linted")],
        "gemini_cli": [gemini("user", "Now lint it all", "8"), gemini("gemini", "Linted", "9")],
        "opencode": [
            one
            for m in (
                opencode("user", "m8", text("Now lint it all")),
                opencode("assistant", "m9", text("Linted")),
            )
            for one in (m["info"], *m["parts"])
        ],
    }[name]
    lines = [*SESSIONS[name], *again]
    first, second = convert(lines, name, Options(per_request=True))
    [whole] = convert(lines, name)

    assert [one.trace.task.objective for one in (first, second)] == ["Fix the tests", "Now lint it all"]
    assert len(second.trace.steps) == 1
    assert first.trace.metadata.created_at == "2026-03-25T02:17:20.880Z" or name == "opencode"
    assert {metadata(one)["parent_id"] for one in (first, second)} == {whole.trace.id}
    assert len(first.trace.steps) + len(second.trace.steps) + 1 == len(whole.trace.steps)


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("lines", [[], ["half a li"], [{"type": "mode", "sessionId": "s"}]])
def test_a_file_without_messages_has_no_run(name, lines):
    [error] = convert(lines, name)

    assert isinstance(error, NoRunError)


ODD = {
    "claude_code": [
        *sidechain(*SESSION, agentId="a7"),
        {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "And lint"}, "uuid": "q"},
        claude("assistant", "Half", m_id="1", m_stop_reason="max_tokens"),
    ],
    "codex": [
        codex("session_meta", {"id": "019b", "source": {"subagent": {"thread_spawn": {"depth": 1}}}}),
        item("tool_search_call", call_id="2", arguments={"query": "github"}, namespace="mcp__a"),
        event("mcp_tool_call_end", call_id="2", invocation={"server": "a"}, result={"Ok": {"isError": True}}),
        event("turn_aborted", reason="interrupted"),
        event("error", message="limit"),
    ],
    "gemini_cli": [gemini("error", "limit", "6"), {"$set": {"summary": "x"}}],
    "opencode": [
        one
        for m in (opencode("assistant", "m5", tool("error", error="no"), error={"name": "X", "data": {}}),)
        for one in (m["info"], *m["parts"])
    ],
}
"""Lines that a session may have, too."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("name", SESSIONS)
@given(data=st.data())
def test_no_line_makes_a_session_fail(name, data):
    """A member of any line may have any value: what fits is converted, and the trace is valid."""
    lines = json.loads(json.dumps([*SESSIONS[name], *ODD[name]]))
    target = data.draw(st.sampled_from(lines[1:]))
    while inner := [one for one in target.values() if isinstance(one, dict) and one]:
        if data.draw(st.booleans()):
            break
        target = data.draw(st.sampled_from(inner))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JSON)

    for conversion in convert(iter(lines), name):
        assert not isinstance(conversion, ConversionError) or re.search("objective|no steps", str(conversion))
