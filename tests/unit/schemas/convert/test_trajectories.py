"""Trajectories: SWE-agent, OpenHands, tau-bench, ATIF."""

import pytest
from atif import (
    Agent,
    ContentPart,
    ImageSource,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
    Trajectory,
)

from knowledgepulse_schemas.convert import (
    ConversionError,
    from_atif,
    from_mini_swe_agent,
    from_openhands,
    from_swe_agent,
    from_tau_bench,
    source_of,
)


def steps(conversion):
    return [(step.type, step.content, step.tool and step.tool.name) for step in conversion.trace.steps]


# SWE-agent 1 ----------------------------------------------------------------------------------------------

SYSTEM = {
    "role": "system",
    "content": "You are an engineer",
    "agent": "main",
    "message_type": "system_prompt",
}
DEMONSTRATION = {"role": "user", "content": "Here is how", "agent": "main", "is_demo": True}
ASK = {"role": "user", "content": "Fix the division", "agent": "main", "message_type": "observation"}
FUNCTION = {"name": "open", "arguments": '{"path": "a.py"}'}
TOOL_CALLING = [
    SYSTEM,
    DEMONSTRATION,
    ASK,
    {
        "role": "assistant",
        "content": "Let me open it",
        "thought": "Let me open it",
        "action": "open a.py",
        "agent": "main",
        "tool_calls": [{"id": "call_1", "type": "function", "function": FUNCTION}],
        "message_type": "action",
    },
    {
        "role": "tool",
        "content": [{"type": "text", "text": "1: a = b/c"}],
        "agent": "main",
        "message_type": "observation",
        "tool_call_ids": ["call_1"],
    },
]
THOUGHT_ACTION = [
    SYSTEM,
    ASK,
    {
        "role": "assistant",
        "content": "Let me open it\n```\nopen a.py\n```",
        "thought": "Let me open it",
        "action": "open a.py\n",
        "agent": "main",
        "message_type": "action",
    },
    {"role": "user", "content": "1: a = b/c", "agent": "main", "message_type": "observation"},
]


def swe_agent(history=TOOL_CALLING, exit_status="submitted", **members):
    return {
        "history": history,
        "trajectory": [],
        "info": {"exit_status": exit_status, "submission": "diff --git"},
        "environment": "main",
        **members,
    }


@pytest.mark.parametrize(
    ("history", "tool_input"),
    [(TOOL_CALLING, {"path": "a.py"}), (THOUGHT_ACTION, {"command": "open a.py"})],
)
def test_converts_both_swe_agent_forms_of_tool_calls(history, tool_input):
    conversion = from_swe_agent(swe_agent(history))

    assert source_of(swe_agent(history)).name == "swe_agent"
    assert conversion.trace.task.objective == "Fix the division"
    assert steps(conversion) == [
        ("thought", "Let me open it", None),
        ("tool_call", None, "open"),
        ("observation", "1: a = b/c", "open"),
    ]
    assert conversion.trace.steps[1].input == tool_input


def test_demonstrations_are_dropped_and_reported():
    losses = from_swe_agent(swe_agent()).losses

    assert losses["history[] of a demonstration"].characters == len("Here is how")
    assert "info.submission" in losses


def test_the_trajectory_completes_the_end_of_the_history():
    step = {
        "thought": "Let me open it",
        "action": "open a.py",
        "observation": "1: a = b/c",
        "response": "Let me",
    }
    last = {"thought": "Done", "action": "submit", "observation": "diff --git", "response": "Done"}
    trajectory = swe_agent(THOUGHT_ACTION[:-1], trajectory=[step, last])

    assert steps(from_swe_agent(trajectory))[2:] == [
        ("observation", "1: a = b/c", "open"),
        ("thought", "Done", None),
        ("tool_call", None, "submit"),
        ("observation", "diff --git", "submit"),
    ]


def test_converts_a_trajectory_without_a_history():
    step = {"thought": "Let me open it", "action": "open a.py", "observation": "1: a = b/c"}
    configuration = {"problem_statement": {"text": "Fix the division", "id": "x"}}
    document = {"trajectory": [step], "info": {}, "replay_config": configuration}

    assert source_of(document).name == "swe_agent"
    assert [kind for kind, _, _ in steps(from_swe_agent(document))] == ["thought", "tool_call", "observation"]


# mini-swe-agent -------------------------------------------------------------------------------------------


def action(command, **called):
    """Return the ``extra`` of a message with a command."""
    return {
        "actions": [{"command": command, **called}],
        "response": {"id": "x"},
        "timestamp": 1_767_225_600.5,
    }


def observed(code, **failure):
    return {"raw_output": "1: a", "returncode": code, "timestamp": 1_767_225_601.5, **failure}


MINI_ASK = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Fix the division"}]
MINI_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "bash", "arguments": '{"command": "ls"}'},
}
MINI_ITEM = {"type": "function_call", "call_id": "call_1", "name": "bash", "arguments": '{"command": "ls"}'}
MINI = {
    "tool calls": [
        {
            "role": "assistant",
            "content": "Let me look",
            "tool_calls": [MINI_CALL],
            "extra": action("ls", tool_call_id="call_1"),
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "1: a", "extra": observed(1)},
    ],
    "text": [
        {"role": "assistant", "content": "Let me look", "extra": action("ls")},
        {"role": "user", "content": "1: a", "extra": observed(1)},
    ],
    "responses": [
        {
            "object": "response",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Let me look"}],
                },
                MINI_ITEM,
            ],
            "extra": action("ls", tool_call_id="call_1"),
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "1: a", "extra": observed(1)},
    ],
}
MINI_DONE = {"role": "assistant", "content": "Fixed"}
MINI_EXIT = {"role": "exit", "content": "diff --git", "extra": {"exit_status": "Submitted"}}


def mini_swe_agent(*messages, exit_status="Submitted"):
    return {
        "info": {"exit_status": exit_status, "submission": "diff --git", "config": {"agent": {}}},
        "messages": [*MINI_ASK, *messages],
        "trajectory_format": "mini-swe-agent-1.1",
    }


@pytest.mark.parametrize("form", MINI)
def test_converts_all_forms_of_mini_swe_agent(form):
    document = mini_swe_agent(*MINI[form], MINI_DONE, MINI_EXIT)

    conversion = from_mini_swe_agent(document)

    assert source_of(document).name == "mini_swe_agent"
    assert steps(conversion) == [
        ("thought", "Let me look", None),
        ("tool_call", None, "bash"),
        ("observation", "1: a", "bash"),
        ("error_recovery", "Fixed", None),
    ]
    assert conversion.trace.steps[1].input == {"command": "ls"}
    assert conversion.trace.metadata.created_at == "2026-01-01T00:00:01.500Z"
    assert conversion.losses["messages[] of the exit"].characters == len("diff --git")


def swe_run(exit_status):
    return from_swe_agent(swe_agent(exit_status=exit_status))


def mini_run(exit_status):
    return from_mini_swe_agent(mini_swe_agent(MINI_DONE, exit_status=exit_status))


@pytest.mark.parametrize(
    ("convert", "exit_status", "source"),
    [
        (swe_run, "submitted", "unverified_submission"),
        (swe_run, None, "unverified_submission"),
        (swe_run, "submitted (exit_cost)", "structural_failure"),
        (swe_run, "exit_context", "structural_failure"),
        (mini_run, "Submitted", "unverified_submission"),
        (mini_run, "", "unverified_submission"),
        (mini_run, "LimitsExceeded", "structural_failure"),
        (mini_run, "RepeatedFormatError", "structural_failure"),
    ],
)
def test_a_submission_is_not_a_success(convert, exit_status, source):
    metadata = convert(exit_status).trace.metadata

    assert (metadata.success, metadata.outcome_source) == (False, source)


def test_the_step_after_an_answer_in_a_wrong_format_is_an_error_recovery():
    wrong = {"role": "user", "content": "No tool call", "extra": {"interrupt_type": "FormatError"}}

    assert steps(from_mini_swe_agent(mini_swe_agent(MINI_DONE, wrong, MINI_DONE)))[1:] == [
        ("observation", "No tool call", None),
        ("error_recovery", "Fixed", None),
    ]


# OpenHands ------------------------------------------------------------------------------------------------

CALLED = {"function_name": "execute_bash", "tool_call_id": "call_1", "model_response": {"id": "x"}}
EVENTS = [
    {"id": 0, "source": "agent", "action": "system", "args": {"content": "You are OpenHands"}},
    {
        "id": 1,
        "timestamp": "2026-01-01T00:00:00.000000",
        "source": "user",
        "action": "message",
        "args": {"content": "Fix the division"},
    },
    {
        "id": 2,
        "source": "environment",
        "observation": "agent_state_changed",
        "extras": {"agent_state": "running"},
    },
    {
        "id": 3,
        "source": "agent",
        "action": "run",
        "args": {"command": "make", "thought": "Let me see"},
        "tool_call_metadata": CALLED,
    },
    {
        "id": 4,
        "source": "agent",
        "observation": "run",
        "content": "No rule",
        "cause": 3,
        "extras": {"metadata": {"exit_code": 2}},
        "tool_call_metadata": CALLED,
    },
    {
        "id": 5,
        "timestamp": "2026-01-01T00:01:00.000000",
        "source": "agent",
        "action": "finish",
        "args": {"final_thought": "It is fixed", "task_completed": "true"},
    },
]

SDK_EVENTS = [
    {
        "id": "e0000000-0000-4000-8000-000000000000",
        "kind": "MessageEvent",
        "timestamp": "2026-01-01T00:00:00",
        "source": "user",
        "llm_message": {"role": "user", "content": [{"type": "text", "text": "Fix the division"}]},
    },
    {
        "id": "e1",
        "kind": "ActionEvent",
        "timestamp": "2026-01-01T00:00:01",
        "source": "agent",
        "thought": [{"type": "text", "text": "Let me see"}],
        "reasoning_content": "Hm",
        "action": {"kind": "TerminalAction", "command": "make"},
        "tool_name": "terminal",
        "tool_call_id": "call_1",
        "tool_call": {"id": "call_1", "name": "terminal", "arguments": '{"command": "make"}'},
        "security_risk": "LOW",
    },
    {
        "id": "e2",
        "kind": "ObservationEvent",
        "timestamp": "2026-01-01T00:00:02",
        "source": "environment",
        "tool_name": "terminal",
        "tool_call_id": "call_1",
        "observation": {"content": [{"type": "text", "text": "No rule"}], "is_error": True, "exit_code": 2},
    },
    {
        "id": "e3",
        "kind": "MessageEvent",
        "timestamp": "2026-01-01T00:01:00",
        "source": "agent",
        "llm_message": {"role": "assistant", "content": [{"type": "text", "text": "It is fixed"}]},
    },
    {
        "id": "e4",
        "kind": "ConversationStateUpdateEvent",
        "timestamp": "2026-01-01T00:01:01",
        "source": "environment",
        "key": "execution_status",
        "value": "finished",
    },
]


def test_converts_openhands_events():
    conversion = from_openhands(EVENTS)

    assert steps(conversion) == [
        ("thought", "Let me see", None),
        ("tool_call", None, "execute_bash"),
        ("observation", "No rule", "execute_bash"),
        ("error_recovery", "It is fixed", None),
        ("tool_call", None, "finish"),
    ]
    assert conversion.trace.metadata.created_at == "2026-01-01T00:01:00.000Z"
    assert conversion.trace.metadata.outcome_source == "unverified_submission"
    assert {"system text", "[].agent_state_changed", "[].tool_call_metadata.model_response"} <= set(
        conversion.losses
    )


def test_converts_openhands_sdk_events():
    conversion = from_openhands(SDK_EVENTS)

    assert steps(conversion) == [
        ("thought", "Hm", None),
        ("thought", "Let me see", None),
        ("tool_call", None, "terminal"),
        ("observation", "No rule", "terminal"),
        ("error_recovery", "It is fixed", None),
    ]
    assert "[].ConversationStateUpdateEvent" in conversion.losses


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "ConversationErrorEvent", "id": "e", "code": "budget", "detail": "out of budget"},
        {"kind": "ConversationStateUpdateEvent", "id": "e", "key": "execution_status", "value": "stuck"},
        {"action": "change_agent_state", "extras": {"agent_state": "error"}},
    ],
)
def test_an_aborted_openhands_run_is_a_failure(event):
    assert from_openhands([*SDK_EVENTS, event]).trace.metadata.outcome_source == "structural_failure"


@pytest.mark.parametrize(
    "report", [{"report": {"resolved": True}}, {"test_result": {"report": {"resolved": True}}}]
)
def test_the_benchmarks_test_report_is_a_label(report):
    metadata = from_openhands({"instance_id": "x", "history": EVENTS, **report}).trace.metadata

    assert (metadata.success, metadata.outcome_source) == (True, "label")


def test_the_instruction_is_the_user_message_of_the_oldest_openhands_files():
    history = [
        {"action": "message", "content": "Fix the division", "images_urls": []},
        {"action": "run", "command": "make", "thought": "Let me see", "keep_prompt": True},
        {"observation": "run", "content": "No rule", "command": "make", "command_id": -1, "exit_code": 2},
    ]

    conversion = from_openhands({"instruction": "Fix the division", "history": history, "success": True})

    assert conversion.trace.task.objective == "Fix the division"
    assert [kind for kind, _, _ in steps(conversion)] == ["thought", "tool_call", "observation"]
    assert conversion.trace.steps[1].input == {"command": "make", "keep_prompt": True}
    assert conversion.trace.metadata.success is True


# tau-bench -------------------------------------------------------------------------------------------------

FUNCTION_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_user", "arguments": '{"id": "mia"}'},
}
RESULT = {
    "task_id": 0,
    "reward": 1.0,
    "info": {"task": {"instruction": "Be terse"}},
    "traj": [
        {"role": "system", "content": "Policy"},
        {"role": "user", "content": "Book a flight"},
        {"role": "assistant", "content": None, "tool_calls": [FUNCTION_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "name": "get_user", "content": "Mia"},
        {"role": "assistant", "content": "Booked"},
    ],
}
SIMULATION = {
    "id": "49b22f0c",
    "task_id": "40",
    "end_time": "2026-01-01T00:00:00",
    "termination_reason": "user_stop",
    "reward_info": {"reward": 0.0},
    "messages": [
        {"role": "assistant", "content": "How can I help?"},
        {"role": "user", "content": "My line is down"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "call_1", "name": "reset", "arguments": {"line": 1}, "requestor": "assistant"}
            ],
        },
        {"role": "tool", "id": "call_1", "content": "no such line", "error": True, "requestor": "assistant"},
        {"role": "assistant", "content": "Please restart it"},
        {
            "role": "user",
            "tool_calls": [{"id": "call_2", "name": "restart", "arguments": {}, "requestor": "user"}],
        },
        {"role": "tool", "id": "call_2", "content": "restarted", "error": False, "requestor": "user"},
    ],
}


def test_the_tau_bench_reward_is_a_label():
    conversion, worthless = from_tau_bench([RESULT, {**RESULT, "reward": 0.5}])

    assert source_of([RESULT]).name == source_of({"simulations": [SIMULATION]}).name == "tau_bench"
    assert [kind for kind, _, _ in steps(conversion)] == ["tool_call", "observation", "thought"]
    assert (conversion.trace.metadata.success, worthless.trace.metadata.success) == (True, False)
    assert conversion.trace.outcome.confidence == worthless.trace.outcome.confidence == 0.5
    assert "info" in conversion.losses


def test_converts_a_tau2_bench_simulation():
    (conversion,) = from_tau_bench({"simulations": [SIMULATION], "info": {}})

    assert steps(conversion) == [
        ("thought", "How can I help?", None),
        ("tool_call", None, "reset"),
        ("observation", "no such line", "reset"),
        ("error_recovery", "Please restart it", None),
    ]
    assert conversion.trace.metadata.success is False
    assert conversion.losses["messages[] of the user's tools"].values == 2


@pytest.mark.parametrize(
    ("reason", "success"), [("agent_stop", True), ("max_steps", False), ("too_many_errors", False)]
)
def test_an_aborted_simulation_is_not_a_success(reason, success):
    (conversion,) = from_tau_bench([{**SIMULATION, "reward_info": None, "termination_reason": reason}])

    assert conversion.trace.metadata.success is success


def test_speech_simulations_are_rejected():
    with pytest.raises(ConversionError, match="speech"):
        from_tau_bench([{**SIMULATION, "messages": None, "ticks": []}])


# ATIF -----------------------------------------------------------------------------------------------------


def trajectory(**members):
    result = ObservationResult(source_call_id="call_1", content="Sunny")
    image = ContentPart(type="image", source=ImageSource(media_type="image/png", path="a.png"))
    return Trajectory(
        schema_version="ATIF-v1.8",
        session_id="session-1",
        agent=Agent(name="forecaster", version="1"),
        steps=[
            Step(step_id=1, source="system", message="Be brief"),
            Step(
                step_id=2, source="user", message=[ContentPart(type="text", text="Weather in Paris?"), image]
            ),
            Step(
                step_id=3,
                source="agent",
                timestamp="2026-01-01T00:00:00Z",
                message="One moment",
                reasoning_content="Look it up",
                tool_calls=[
                    ToolCall(tool_call_id="call_1", function_name="weather", arguments={"city": "Paris"})
                ],
                observation=Observation(results=[result]),
            ),
            Step(step_id=4, source="agent", timestamp="2026-01-01T00:01:00Z", message="It is sunny."),
        ],
        **members,
    ).model_dump(mode="json", exclude_none=True)


def test_converts_an_atif_trajectory():
    conversion = from_atif(trajectory(notes="a note"))

    assert source_of(trajectory()).name == "atif"
    assert conversion.trace.task.objective == "Weather in Paris?"
    assert steps(conversion) == [
        ("thought", "Look it up", None),
        ("thought", "One moment", None),
        ("tool_call", None, "weather"),
        ("observation", "Sunny", "weather"),
        ("thought", "It is sunny.", None),
    ]
    metadata = conversion.trace.metadata
    assert (metadata.agent_id, metadata.created_at) == ("forecaster", "2026-01-01T00:01:00.000Z")
    assert {"notes", "system text", "steps[].message[].source"} <= set(conversion.losses)


def test_steps_copied_from_another_trajectory_are_dropped():
    document = trajectory()
    document["steps"][2]["is_copied_context"] = True

    conversion = from_atif(document)

    assert steps(conversion) == [("thought", "It is sunny.", None)]
    assert "steps[] copied from another trajectory" in conversion.losses


def test_the_id_of_a_trajectory_is_its_native_id_whatever_its_content():
    longer = trajectory() | {
        "steps": [*trajectory()["steps"], {"step_id": 5, "source": "agent", "message": "Bye"}]
    }

    assert from_atif(longer).trace.id == from_atif(trajectory()).trace.id
    assert from_atif(trajectory(trajectory_id="2")).trace.id != from_atif(trajectory()).trace.id
