"""A failure that a row states must not become a success: a learned value would learn from it."""

import json

import pytest

from knowledgepulse_convert import convert

ASKED = {"role": "user", "content": "How warm is it in Oslo"}
MESSAGES = [ASKED, {"role": "assistant", "content": "It is 4 degrees."}]
NEBIUS = [{"role": "user", "text": ASKED["content"]}, {"role": "ai", "text": "It is 4 degrees."}]


def end_of(row):
    """Return a row's success and where it is from."""
    [conversion] = convert(row)
    return conversion.metadata.success, conversion.metadata.outcome_source


@pytest.mark.parametrize(
    "members",
    [
        *({name: False} for name in ("resolved", "isResolved", "Resolved", "is_correct", "tests_passed")),
        *({"resolved": value} for value in (0, 0.0, "False", "no", "unresolved")),
        *({"reward": value} for value in (0, 0.5, -1, "0.0", [0.0, 0], {"total": 0.0}, False)),
        *({name: 0.0} for name in ("final_reward", "score", "eval_score", "accuracy", "pass@1")),
        *({name: "incorrect"} for name in ("verdict", "outcome", "label", "judgment", "judgement")),
        *({name: True} for name in ("failed", "unresolved", "crashed", "truncated")),
        *({"failed": value} for value in (1, "true", "1")),
        *(
            {name: False}
            for name in ("finished", "done", "target", "label", "ok", "goal_achieved", "accepted")
        ),
        *({"completed": value} for value in (0, "no", "False", "0")),
        *({name: 0} for name in ("exact_match", "em", "success_rate", "pass_rate", "correctness")),
        *({"human_label": "fail"}, {"gpt_judge": "incorrect"}, {"evaluation": "failed"}, {"verdict": "no"}),
        *({"score": "0.0"}, {"is_solved": "0"}),
        *({name: {"resolved": False}} for name in ("report", "evaluation", "extra_info", "outcome")),
        {"report": {"a__b-1": {"resolved": False}}},
        {"verifier_result": {"rewards": {"reward": 0.0}}},
        {"resolved": True, "reward": 0},
        {"rewards": {"right": 1.0, "short": 0.5}},
        *({name: json.dumps({"reward": 0})} for name in ("metadata", "metrics", "extra_info")),
    ],
    ids=json.dumps,
)
def test_a_row_that_states_a_failure_is_no_success(members):
    assert end_of({"messages": MESSAGES, **members}) == (False, "label")


@pytest.mark.parametrize(
    "members",
    [{"resolved": True}, {"is_success": 1}, {"reward": 1.0}, {"verdict": "correct"}, {"passed": "true"}],
    ids=json.dumps,
)
def test_a_row_that_states_a_success_is_one(members):
    assert end_of({"messages": MESSAGES, **members}) == (True, "label")


@pytest.mark.parametrize(
    "members",
    [
        {"reward": 7},
        {"rewards": [0, 1]},
        {"rewards": []},
        {"score": 3},
        {"resolved": None},
        {"label": "no"},
        {"target": "4"},
        {"tests_passed": 0},
        {"done": True},
        {"ok": True},
        {"label": 0},
        {"match": 1},
        {"result": "Max"},
        {"result": "The error was a timeout"},
        {"error_rate": 0.0},
        {"stop_reason": "end_turn"},
        {"exit_code": 0},
        {"exit_code": "0"},
        {"config": {"success": False}},
        {"result": json.dumps({"success": False})},
        {"metadata": "{"},
        {"status": "completed"},
        {"exit_status": "completed"},
    ],
    ids=json.dumps,
)
def test_what_may_mean_something_else_is_no_verdict(members):
    assert end_of({"messages": MESSAGES, **members}) == (True, "ended_without_error")


@pytest.mark.parametrize(
    ("members", "source"),
    [
        ({"exit_status": "submitted"}, "unverified_submission"),
        ({"exit_status": "exit_cost"}, "structural_failure"),
        ({"info": {"exit_status": "LimitsExceeded"}}, "structural_failure"),
        ({"status": "timeout"}, "structural_failure"),
        ({"exception_info": {"type": "AgentTimeoutError"}}, "structural_failure"),
        ({"result": "AgentTimeoutError"}, "structural_failure"),
        ({"final_status": "FAILED"}, "structural_failure"),
        ({"verification_status": "failed"}, "structural_failure"),
        ({"status": "max_turns_exceeded"}, "structural_failure"),
        ({"status": "timed_out"}, "structural_failure"),
        ({"exit_reason": "max_steps"}, "structural_failure"),
        ({"termination_reason": "too_many_errors"}, "structural_failure"),
        ({"finish_reason": "length"}, "structural_failure"),
        ({"failure_reason": "no patch"}, "structural_failure"),
        ({"timed_out": True}, "structural_failure"),
        ({"exit_code": 1}, "structural_failure"),
    ],
    ids=json.dumps,
)
def test_a_run_that_ended_with_a_failure_or_a_submission_is_no_success(members, source):
    assert end_of({"messages": MESSAGES, **members}) == (False, source)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": json.dumps(MESSAGES)},
        {"conversations": MESSAGES},
        {"trajectory": json.dumps(MESSAGES)},
        {"trajectory": NEBIUS},
        {"traj": MESSAGES},
        {"history": MESSAGES},
        {"conversations": [{"from": "human", "value": ASKED["content"]}, {"from": "gpt", "value": "4"}]},
        {
            "schema_version": "ATIF-v1.6",
            "agent": {"name": "a", "version": "1"},
            "session_id": "s",
            "steps": [
                {"step_id": 1, "source": "user", "message": ASKED["content"]},
                {"step_id": 2, "source": "agent", "message": "It is 4 degrees."},
            ],
        },
        {
            "history": [
                {"source": "user", "action": "message", "args": {"content": ASKED["content"]}},
                {"source": "agent", "action": "finish", "args": {"thought": "4"}},
            ]
        },
        {
            "history": [
                {"role": "user", "content": ASKED["content"], "agent": "main"},
                {"role": "assistant", "content": "4", "agent": "main"},
            ]
        },
    ],
    ids=lambda row: json.dumps(row)[:60],
)
def test_the_verdict_counts_in_whatever_member_a_row_has_its_messages(row):
    assert end_of({**row, "instance_id": "a__b-1", "resolved": False}) == (False, "label")


@pytest.mark.parametrize(
    ("members", "rewards"),
    [
        ({"reward": 0.5}, {"reward": 0.5}),
        ({"final_reward": -1, "score": "7"}, {"final_reward": -1, "score": 7}),
        ({"rewards": {"right": 1, "short": 0.5, "note": "good"}}, {"right": 1, "short": 0.5}),
        ({"metrics": json.dumps({"accuracy": 0.5})}, {"accuracy": 0.5}),
        ({"reward": True}, {"reward": 1}),
    ],
    ids=json.dumps,
)
def test_the_numbers_of_rewards_and_scores_are_kept(members, rewards):
    [conversion] = convert({"messages": MESSAGES, **members})
    assert {reward["name"]: reward["value"] for reward in conversion.metadata.rewards} == rewards


@pytest.mark.parametrize("reward", [None, "nan", "inf", "-inf", "good", [], [0.0, 0.5], 10**400, {"a": "b"}])
def test_what_is_no_number_of_the_whole_run_is_no_reward(reward):
    [conversion] = convert({"messages": MESSAGES, "reward": reward})
    assert conversion.metadata.rewards is None
    assert conversion.metadata.success


@pytest.mark.parametrize("name", ["task_id", "instance_id", "taskId", "problem_id"])
@pytest.mark.parametrize("where", [lambda row: row, lambda row: {"metadata": row}])
def test_the_id_of_the_task_is_kept(name, where):
    ids = [
        convert({"messages": MESSAGES, **where({name: task})}) for task in ("a__b-1", 7, "", None, True, {})
    ]
    assert [conversion.metadata.task_id for [conversion] in ids] == ["a__b-1", "7", None, None, None, None]
