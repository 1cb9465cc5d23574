"""A small document in every format that :mod:`knowledgepulse_schemas.convert` reads, as plain JSON.

A document's name consists of the source's name and, if there are several variants, the variant's.
"""

import json

ASK = {"role": "user", "content": "What is the weather in Paris?"}
FUNCTION = {"name": "weather", "arguments": '{"city": "Paris"}'}
CHAT_CALL = {"role": "assistant", "content": "One moment", "tool_calls": [{"id": "c1", "function": FUNCTION}]}
CHAT_ANSWER = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "Sunny"}]}
CHAT_DONE = {"role": "assistant", "content": "It is sunny."}
CHAT = [{"role": "system", "content": "Be brief"}, ASK, CHAT_CALL, CHAT_ANSWER, CHAT_DONE]


def pairs(**values):
    named = {name.replace("__", "."): value for name, value in values.items()}
    return [{"key": name, "value": {"stringValue": value}} for name, value in named.items()]


def part(kind, **members):
    return {"type": kind, **members}


MESSAGES = [
    {"role": "user", "parts": [part("text", content="Weather?"), part("blob", content="AAAA")]},
    {"role": "assistant", "parts": [part("tool_call", id="c1", name="weather", arguments={})], "name": "a"},
    {"role": "tool", "parts": [part("tool_call_response", id="c1", response="Sunny")]},
]
TOOL = {"name": "weather", "description": "x", "parameters": {"type": "object"}}
SAID = [{"role": "assistant", "parts": [part("text", content="It is sunny.")], "finish_reason": "stop"}]
SPANS = [
    {
        "traceId": "a",
        "spanId": "1",
        "name": "invoke_agent",
        "attributes": pairs(gen_ai__operation__name="invoke_agent"),
        "events": [{"name": "note", "attributes": pairs(text="x")}],
        "status": {"code": 0},
    },
    {
        "traceId": "a",
        "spanId": "2",
        "parentSpanId": "1",
        "attributes": pairs(
            gen_ai__operation__name="chat",
            gen_ai__input__messages=json.dumps(MESSAGES),
            gen_ai__output__messages=json.dumps(SAID),
            gen_ai__system_instructions=json.dumps([part("text", content="Be brief")]),
            gen_ai__tool__definitions=json.dumps([{"type": "function", **TOOL}]),
        ),
    },
    {"traceId": "a", "spanId": "3", "parentSpanId": "1", "name": "POST", "attributes": pairs(url="x")},
]
RESOURCE = {"attributes": pairs(service__name="weather", host__name="x")}
JAEGER_SPANS = [
    {
        "traceID": "a",
        "spanID": one["spanId"],
        "operationName": one.get("name", ""),
        "references": [{"refType": "CHILD_OF", "spanID": "1"}] if "parentSpanId" in one else [],
        "tags": [{"key": pair["key"], "value": pair["value"]["stringValue"]} for pair in one["attributes"]],
        "logs": [{"fields": [{"key": "event", "value": "note"}, {"key": "text", "value": "x"}]}],
        "processID": "p1",
    }
    for one in SPANS
]
LANGCHAIN = [
    {"type": "human", "content": "Weather?"},
    {
        "type": "ai",
        "content": [part("text", text="Hm")],
        "tool_calls": [{"name": "weather", "args": {}, "id": "c1"}],
    },
    {"type": "tool", "content": "Sunny", "tool_call_id": "c1"},
    {
        "type": "ai",
        "content": "It is sunny.",
        "response_metadata": {"model": "x"},
        "additional_kwargs": {"a": "b"},
    },
]
OBSERVATION = {"traceId": "t", "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:01Z"}

DOCUMENTS = {
    "openai": {
        "messages": CHAT,
        "choices": [{"message": CHAT_DONE, "finish_reason": "stop"}],
        "tools": [{"type": "function", "function": TOOL}],
    },
    "openai responses": {
        "object": "response",
        "instructions": "Be brief",
        "tools": [{"type": "function", **TOOL}],
        "input": [
            ASK,
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "Sunny"},
            {"type": "web_search_call", "id": "w1", "action": {"query": "x"}},
            {"type": "compaction", "encrypted_content": "x"},
        ],
        "output": [{"type": "message", "role": "assistant", "content": [part("output_text", text="It is")]}],
    },
    "anthropic": {
        "system": [part("text", text="Be brief")],
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
        "messages": [
            ASK,
            {
                "role": "assistant",
                "content": [part("thinking", thinking="Hm"), part("tool_use", id="1", name="w")],
            },
            {
                "role": "user",
                "content": [part("tool_result", tool_use_id="1", content=[part("text", text="Sunny")])],
            },
            {
                "role": "user",
                "content": [part("image", source={"data": "AAAA"}), part("text", text="And this?")],
            },
        ],
        "type": "message",
        "role": "assistant",
        "content": [part("text", text="It is sunny.")],
        "stop_reason": "end_turn",
    },
    "vercel": [
        ASK,
        {
            "role": "assistant",
            "content": [
                part("reasoning", text="Hm"),
                part("tool-call", toolCallId="1", toolName="weather", input={}),
            ],
        },
        {
            "role": "tool",
            "content": [part("tool-result", toolCallId="1", toolName="weather", output={"value": "Sunny"})],
        },
        CHAT_DONE,
    ],
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "Weather?"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": "Sunny"}}]},
            {"role": "model", "parts": [{"text": "It is sunny."}]},
        ],
        "tools": [{"functionDeclarations": [TOOL]}],
    },
    "bedrock": {
        "system": [{"text": "Be brief"}],
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}]
        },
        "messages": [
            {"role": "user", "content": [{"text": "Weather?"}, {"image": {"format": "png"}}]},
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "x"}}},
                    {"toolUse": {"toolUseId": "1", "name": "weather", "input": {}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "1", "content": [{"text": "?"}], "status": "error"}},
                    {"cachePoint": {"type": "default"}},
                ],
            },
        ],
        "output": {"message": {"role": "assistant", "content": [{"text": "It is sunny."}]}},
        "stopReason": "end_turn",
        "ResponseMetadata": {
            "RequestId": "r1",
            "HTTPHeaders": {"date": "Thu, 01 Jan 2026 00:00:00 GMT", "x": "y"},
        },
    },
    "langchain": {"messages": LANGCHAIN, "documents": ["x"]},
    "langchain snapshot": {"values": {"messages": LANGCHAIN}, "checkpoint": {"thread_id": "t"}},
    "otlp": {
        "resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"spans": SPANS, "scope": {"name": "x"}}]}]
    },
    "jaeger": {
        "data": [{"spans": JAEGER_SPANS, "processes": {"p1": {"serviceName": "weather", "tags": []}}}]
    },
    "phoenix": [
        {
            "context": {"trace_id": "a", "span_id": "1"},
            "span_kind": "LLM",
            "name": "x",
            "attributes": {"llm.input_messages.0.message.content": "Weather?", "output.value": "x", "x": "y"},
            "events": [{"name": "note", "attributes": {"text": "x"}}],
        }
    ],
    "langsmith": [
        {"id": "1", "run_type": "chain", "inputs": {"messages": CHAT[:2]}, "outputs": {"messages": CHAT}},
        {
            "id": "2",
            "trace_id": "1",
            "parent_run_id": "1",
            "run_type": "llm",
            "inputs": {"messages": CHAT[:4], "tools": [TOOL]},
            "outputs": {"choices": [{"message": CHAT_DONE}]},
        },
        {"id": "3", "trace_id": "1", "parent_run_id": "1", "run_type": "prompt", "inputs": {"x": "y"}},
    ],
    "langfuse": [
        {**OBSERVATION, "id": "1", "type": "AGENT", "input": "Weather?", "output": "x"},
        {
            **OBSERVATION,
            "id": "2",
            "type": "GENERATION",
            "parentObservationId": "1",
            "input": CHAT,
            "output": "x",
        },
        {**OBSERVATION, "id": "3", "type": "EVENT", "parentObservationId": "1", "input": {"x": "y"}},
    ],
    "langfuse trace": {
        "id": "t",
        "input": {"question": "Weather?"},
        "output": "Something else",
        "observations": [{**OBSERVATION, "id": "2", "type": "GENERATION", "input": CHAT, "output": "x"}],
        "scores": [{"name": "success", "value": 1}],
    },
    "langfuse download": {
        "trace": {"id": "t", "input": {"question": "Weather?"}, "output": "Something else"},
        "observations": [
            {
                **OBSERVATION,
                "id": "2",
                "type": "GENERATION",
                "parentObservationId": "?",
                "input": CHAT,
                "output": "x",
            }
        ],
    },
    "openai_agents": [
        {"object": "trace", "id": "t", "workflow_name": "w", "metadata": {"a": "b"}},
        {"object": "trace.span", "id": "1", "trace_id": "t", "span_data": {"type": "agent", "name": "a"}},
        {
            "object": "trace.span",
            "id": "2",
            "trace_id": "t",
            "parent_id": "1",
            "span_data": {"type": "generation", "input": CHAT[:4], "output": [CHAT_DONE]},
            "error": {"message": "x", "data": {"a": "b"}},
        },
    ],
    "swe_agent": {
        "history": [
            {"role": "system", "content": "x", "agent": "main"},
            {"role": "user", "content": "Fix it", "agent": "main"},
            {"role": "assistant", "content": "a", "thought": "b", "action": "open a.py", "agent": "main"},
            {"role": "user", "content": "1: a", "agent": "main"},
        ],
        "trajectory": [{"thought": "b", "action": "open a.py", "observation": "1: a", "state": {"x": "y"}}],
        "info": {"exit_status": "submitted"},
    },
    "mini_swe_agent": {
        "messages": [
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": "Fix it"},
            {
                "role": "assistant",
                "content": "Hm",
                "extra": {"actions": [{"command": "make"}], "response": {"id": "x"}},
            },
            {"role": "user", "content": "No rule", "extra": {"raw_output": "No rule", "returncode": 2}},
            {"role": "exit", "content": "diff --git", "extra": {"exit_status": "Submitted"}},
        ],
        "info": {"exit_status": "Submitted", "submission": "diff --git", "model_stats": {"api_calls": 1}},
        "trajectory_format": "mini-swe-agent-1.1",
    },
    "mini_swe_agent list": [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "Fix it"},
        {"role": "assistant", "content": "Hm\n```bash\nmake\n```"},
        {"role": "user", "content": "<returncode>2</returncode>\n<output>\nNo rule\n</output>"},
        {"role": "assistant", "content": "```bash\nsubmit\n```"},
        {"role": "user", "content": "diff --git"},
    ],
    "openhands": {
        "history": [
            {"action": "system", "source": "agent", "args": {"content": "Be brief", "tools": [TOOL]}},
            {"action": "message", "source": "user", "args": {"content": "Fix it"}},
            {"action": "run", "source": "agent", "args": {"command": "make", "thought": "Hm"}},
            {"observation": "run", "content": "No rule", "extras": {"command": "make"}},
            {"observation": "null", "message": "x"},
        ],
        "instance_id": "x",
    },
    "openhands sdk": [
        {
            "kind": "SystemPromptEvent",
            "id": "0",
            "system_prompt": part("text", text="Be brief"),
            "tools": [{"type": "function", "function": TOOL}],
        },
        {
            "kind": "MessageEvent",
            "id": "1",
            "llm_message": {"role": "user", "content": [part("text", text="Fix it")]},
        },
        {
            "kind": "ActionEvent",
            "id": "2",
            "thought": [part("text", text="Hm")],
            "tool_name": "terminal",
            "action": {"command": "make"},
        },
        {"kind": "ObservationEvent", "id": "3", "observation": {"content": [part("text", text="No rule")]}},
        {"kind": "CondensationEvent", "id": "4", "summary": "x"},
    ],
    "tau_bench": [
        {"traj": CHAT, "reward": 1.0, "info": {"x": "y"}},
        {
            "id": "1",
            "task_id": "1",
            "termination_reason": "user_stop",
            "reward_info": {"reward": 1.0},
            "messages": [
                {"role": "user", "content": "Fix it"},
                {"role": "user", "content": "x", "tool_calls": [{"name": "restart"}]},
                {"role": "tool", "tool_messages": [{"role": "tool", "id": "1", "content": "y"}]},
                {"role": "assistant", "content": "Done"},
            ],
        },
    ],
    "atif": {
        "schema_version": "ATIF-v1.8",
        "agent": {"name": "a", "tool_definitions": [{"type": "function", "function": TOOL}]},
        "steps": [
            {"step_id": 0, "source": "system", "message": "Be brief"},
            {"step_id": 1, "source": "user", "message": [part("text", text="Weather?")]},
            {
                "step_id": 2,
                "source": "agent",
                "message": "Hm",
                "tool_calls": [{"tool_call_id": "1", "function_name": "weather", "arguments": {}}],
                "observation": {"results": [{"source_call_id": "1", "content": "Sunny"}]},
            },
        ],
    },
    "inspect": {
        "version": 2,
        "status": "success",
        "eval": {"task": "weather", "run_id": "r", "task_id": "t", "created": "2026-01-01T00:00:00+00:00"},
        "plan": {"name": "plan"},
        "stats": {"started_at": "x"},
        "samples": [
            {
                "id": 1,
                "epoch": 1,
                "input": "Weather?",
                "target": "x",
                "messages": [
                    {"role": "system", "content": "Be brief"},
                    {
                        "role": "user",
                        "content": [part("text", text="Weather?"), part("image", image="x")],
                    },
                    {
                        "role": "assistant",
                        "content": [part("reasoning", reasoning="Hm", signature="x")],
                        "tool_calls": [
                            {"id": "1", "function": "weather", "arguments": {}, "view": {"x": "y"}}
                        ],
                        "model": "x",
                    },
                    {
                        "role": "tool",
                        "content": "",
                        "tool_call_id": "1",
                        "function": "weather",
                        "error": {"type": "timeout", "message": "too slow"},
                    },
                    {"role": "assistant", "content": "It is sunny."},
                ],
                "output": {"choices": [{"message": {"content": "It is sunny."}, "stop_reason": "stop"}]},
                "scores": {"match": {"value": "C", "answer": "x", "explanation": "y"}},
                "attachments": {"a": "The weather"},
                "events": [
                    {
                        "event": "model",
                        "tools": [TOOL | {"description": "attachment://a"}],
                        "timestamp": "2026-01-01T00:00:01+00:00",
                    }
                ],
            }
        ],
    },
    "adk": {
        "id": "s",
        "app_name": "weather",
        "user_id": "u",
        "state": {"x": "y"},
        "events": [
            {
                "author": "user",
                "invocation_id": "1",
                "content": {"parts": [{"text": "Weather?"}], "role": "user"},
            },
            {
                "author": "forecaster",
                "invocation_id": "1",
                "content": {
                    "parts": [{"function_call": {"name": "weather", "args": {}, "id": "1"}}],
                    "role": "model",
                },
                "actions": {"state_delta": {"x": "y"}},
            },
            {
                "author": "forecaster",
                "invocation_id": "1",
                "content": {
                    "parts": [
                        {"function_response": {"name": "weather", "id": "1", "response": {"output": "Sunny"}}}
                    ],
                    "role": "user",
                },
            },
            {"author": "forecaster", "invocation_id": "1", "content": {"parts": [{"text": "It is sunny."}]}},
        ],
    },
    "agentdojo": {
        "suite_name": "banking",
        "pipeline_name": "gpt",
        "user_task_id": "user_task_1",
        "injection_task_id": None,
        "attack_type": None,
        "injections": {"a": "b"},
        "messages": [
            {"role": "system", "content": [part("text", content="Be brief")]},
            {"role": "user", "content": [part("text", content="Weather?")]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"function": "weather", "args": {}, "id": "1", "placeholder_args": {"a": "b"}}
                ],
            },
            {
                "role": "tool",
                "content": [part("text", content="?")],
                "tool_call_id": "1",
                "tool_call": {"function": "weather", "args": {}, "id": "1"},
                "error": "ValueError: no such city",
            },
            {
                "role": "assistant",
                "content": [part("thinking", content="Hm"), part("text", content="It is sunny.")],
            },
        ],
        "error": None,
        "evaluation_timestamp": "2026-01-01 00:00:00",
        "utility": True,
        "security": False,
    },
}
