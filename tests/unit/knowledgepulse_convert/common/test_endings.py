"""How a run ended follows from its last part, by one rule for every format."""

import pytest

from knowledgepulse_convert import Options, RunOutcome, convert
from knowledgepulse_convert.common.ir import Error, Message, Reasoning, Run, Text, ToolCall, ToolCallResponse
from knowledgepulse_convert.common.statuses import is_failure, told_by
from knowledgepulse_convert.common.trace import to_trace

ASK = Message("user", (Text("Weigh the loaf, please"),))
MORE = Message("user", (Text("And the tin?"),))
ANSWER = Message("assistant", (Text("It weighs 812 g."),))
CALL = Message("assistant", (ToolCall("weigh", {"what": "loaf"}, "c1"),))
RESULT = Message("tool", (ToolCallResponse("812 g", "c1"),))
FAILED = Message("tool", (ToolCallResponse("no scale", "c1", failed=True),))
ERROR = Message("assistant", (Error("status 500"),))
INTERRUPTED = Message("assistant", (Error(interruption=True),))
THOUGHT = Message("assistant", (Reasoning("I weigh it."),))
BLANK = Message("assistant", (Text("\n"),))
NOTICE = Message("system", (Text("Session closed"),))


def calls(*names):
    return Message("assistant", tuple(ToolCall(name, {}, name) for name in names))


def results(*names, **members):
    return Message("tool", tuple(ToolCallResponse("ok", name, **members) for name in names))


def metadata(*messages, options=None, **run):
    return to_trace(Run(list(messages), framework="test", **run), options).metadata


@pytest.mark.parametrize(
    ("messages", "ending"),
    [
        ((ASK, ANSWER), "answered"),
        ((ASK, CALL, RESULT, ANSWER), "answered"),
        ((ASK, CALL, FAILED, ANSWER), "answered"),
        ((ASK, CALL, RESULT, ANSWER, MORE), "answered"),
        ((ASK, ANSWER, NOTICE), "answered"),
        ((ASK, ERROR, ANSWER), "answered"),
        ((ASK, INTERRUPTED, ANSWER), "answered"),
        ((ASK, CALL), "cut_off"),
        ((ASK, CALL, RESULT), "cut_off"),
        ((ASK, CALL, FAILED), "cut_off"),
        ((ASK, CALL, RESULT, MORE), "cut_off"),
        ((ASK, CALL, RESULT, BLANK), "cut_off"),
        ((ASK, CALL, RESULT, THOUGHT), "cut_off"),
        ((ASK, CALL, RESULT, NOTICE), "cut_off"),
        ((ASK, ANSWER, MORE, CALL, RESULT), "cut_off"),
        ((ASK, MORE), "cut_off"),
        ((ASK, ANSWER, INTERRUPTED), "cut_off"),
        ((ASK, CALL, RESULT, ERROR), "failed"),
        ((ASK, ANSWER, ERROR), "failed"),
        ((ASK, ANSWER, ERROR, INTERRUPTED), "failed"),
    ],
)
def test_the_agents_last_part_tells_how_a_run_ended(messages, ending):
    assert metadata(*messages).ending == ending


@pytest.mark.parametrize(
    ("messages", "ending"),
    [
        ((calls("finish"),), "answered"),
        ((calls("Finish"), results("Finish")), "answered"),
        ((calls("mark_task_complete"), results("mark_task_complete")), "answered"),
        ((calls("attempt_completion"), MORE), "answered"),
        ((calls("final_result_Loaf"), results("final_result_Loaf")), "answered"),
        ((calls("submit"), results("submit")), "submitted"),
        ((calls("final_result", "weigh"), results("final_result", "weigh")), "answered"),
        ((calls("weigh", "submit"), results("weigh", "submit")), "submitted"),
        ((calls("final_result"), results("final_result", failed=True)), "cut_off"),
        ((calls("final_result", "weigh"), results("weigh", failed=True)), "answered"),
        ((calls("submit"), results("submit"), CALL, RESULT), "cut_off"),
        ((calls("submit_order"), results("submit_order")), "cut_off"),
        ((calls("weigh"), results("weigh", is_answer=True)), "answered"),
        ((calls("weigh"), results("weigh", is_answer=True), CALL, RESULT), "cut_off"),
    ],
)
def test_a_call_that_ends_a_run_needs_no_answer_behind_it(messages, ending):
    assert metadata(ASK, *messages).ending == ending


@pytest.mark.parametrize(
    ("arguments", "result"),
    [({"answer": "812 g"}, "812 g"), ('{"message": "812 g"}', "812 g"), ("812 g", "812 g"), ({}, "I weigh.")],
)
def test_the_answer_in_a_call_is_the_result(arguments, result):
    call = Message("assistant", (Text("I weigh."), ToolCall("finish", arguments)))

    assert to_trace(Run([ASK, call], framework="test")).trace.outcome.result_summary == result


@pytest.mark.parametrize(
    ("stated", "messages", "ending"),
    [
        ("answered", (ASK, CALL, RESULT), "answered"),
        ("submitted", (ASK, CALL, RESULT), "submitted"),
        ("answered", (ASK, CALL, ERROR), "failed"),
        ("failed", (ASK, ANSWER), "failed"),
        ("cut_off", (ASK, ANSWER), "cut_off"),
    ],
)
def test_what_a_program_states_of_the_end_counts_unless_an_error_is_last(stated, messages, ending):
    assert metadata(*messages, ending=stated).ending == ending


@pytest.mark.parametrize(
    ("run", "success", "source"),
    [
        ({"ending": None}, True, "ended_without_error"),
        ({"unverified": True}, False, "unverified_submission"),
        ({"ending": "submitted"}, False, "unverified_submission"),
        ({"ending": "failed"}, False, "structural_failure"),
        ({"ending": "cut_off"}, False, "structural_failure"),
    ],
)
def test_the_ending_decides_on_success_only_where_nobody_has_judged(run, success, source):
    found = metadata(ASK, ANSWER, **run)
    assert (found.success, found.outcome_source) == (success, source)
    for verdict in (True, False):
        judged = metadata(ASK, ANSWER, **run, outcome=RunOutcome(success=verdict))
        assert (judged.success, judged.outcome_source, judged.ending) == (verdict, "label", found.ending)


def test_each_request_of_a_session_has_its_own_ending():
    line = {"role": "user", "content": "Weigh the loaf, please"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "weigh"}}]}
    answer = {"role": "assistant", "content": "812 g"}

    pieces = convert([line, answer, line, call], options=Options(per_request=True))

    assert [piece.metadata.ending for piece in pieces] == ["answered", "cut_off"]


def test_what_a_program_says_is_no_request_of_its_own():
    line = {"role": "user", "content": "Weigh the loaf, please"}
    answer = {"role": "assistant", "content": "812 g"}
    notice = {"role": "user", "content": "<system-reminder source='memory'>\nBe brief.\n</system-reminder>"}

    [whole] = convert([line, answer, notice, answer], options=Options(per_request=True))

    assert whole.metadata.ending == "answered"


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        *((word, "cut_off") for word in ("canceled", "cancelled", "CANCELED", "aborted", "interrupted")),
        *((word, "cut_off") for word in ("length", "max_tokens", "MAX_TOKENS", "FinishReason.MAX_TOKENS")),
        *((word, "cut_off") for word in ("content_filter", "content-filter", "refusal", "SAFETY", "timeout")),
        *(
            (word, "cut_off")
            for word in ("LimitsExceeded", "error_max_turns", "model_context_window_exceeded")
        ),
        *(
            (word, "failed")
            for word in ("error", "failed", "turn.failed", "errored", "agent_error", "crashed")
        ),
        *((word, None) for word in ("stop", "end_turn", "tool_calls", "completed", "success", "STOP", "")),
        *((word, None) for word in ("unlimited", "terrorised", None, 3, "error " * 30)),
    ],
)
def test_all_formats_know_the_same_words_for_an_ending(status, ending):
    assert told_by(status) == ending


def test_a_call_that_was_declined_has_failed_but_a_run_has_not():
    assert all(map(is_failure, ("declined", "rejected-by-user", "denied", "canceled", "errored")))
    assert not any(map(is_failure, ("success", "completed", "approved")))
    assert told_by("declined") is None


@pytest.mark.parametrize("status", ["canceled", "cancelled", "max_turns_exceeded", "timed_out"])
def test_a_row_that_was_cancelled_or_reached_a_limit_is_no_success(status):
    row = {"messages": [{"role": "user", "content": "Weigh it"}, {"role": "assistant", "content": "812 g"}]}

    [conversion] = convert(row | {"status": status})

    assert (conversion.metadata.ending, conversion.metadata.success) == ("cut_off", False)
