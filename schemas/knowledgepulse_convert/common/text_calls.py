"""Tool calls that a model writes as text, since its API or its training data has no calls.

The forms are those of OpenHands, SWE-smith and Qwen3-Coder (``<function=bash><parameter=command>…``), of
Hermes and Qwen (``<tool_call>{"name": …}``), of Anthropic's early API (``<invoke name="bash">``), of ReAct
(``Action: … Action Input: …``, ``Function Name: … Function Input: …``, ``Action: search[…]``), of Terminus
(JSON with ``commands``), and JSON with a call's name and arguments (``tool_name`` and ``arguments``,
``action`` and ``action_input``). They are read only in runs that have no other calls, and only at the end of
a text, where a model stops for the response: elsewhere a text may just quote them. The last ``</function>``
may be missing, since OpenHands stops the model at it.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, MutableSequence, Sequence
from itertools import islice
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.endings import ending_by
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, parse_json

UNREAD = "tool calls in text, in a form that is not known"

_CALL = re.compile(
    r"<function=(?P<name>[\w.:-]+)>(?P<body>(?:(?!<function=).)*?)(?:(?P<closed></function>)|\Z)"
    r"|<invoke name=\"(?P<invoked>[\w.:-]+)\">(?P<invocation>(?:(?!<invoke ).)*?)</invoke>"
    r"|<tool_call>\s*(?P<json>\{(?:(?!<tool_call>).)*?\})\s*</tool_call>",
    re.DOTALL,
)
_PARAMETER = re.compile(
    r"<parameter=(?P<name>[^<>]++)>(?P<value>(?:(?!<parameter[= ]).)*?)</parameter>"
    r"|<parameter name=\"(?P<named>[^<\"]++)\"[^<>]*+>(?P<given>(?:(?!<parameter[= ]).)*?)</parameter>",
    re.DOTALL,
)
_REACT = re.compile(
    r"^(?:Action|Function Name):[ \t]*+(?P<name>[^\n]++)\n(?:Action|Function) Input:[ \t]*+(?P<input>.*?)"
    r"(?:\nFunction Output:(?P<output>.*))?\Z",  # BeeAI
    re.DOTALL | re.MULTILINE,
)
_REACT_IN_BRACKETS = re.compile(
    r"^Action(?: \d++)?:[ \t]*+(?P<name>[\w.-]++)\[(?P<input>[^\n]*)\]\s*\Z", re.MULTILINE
)
_THEN = re.compile(r"\n(?=Thought:|Final Answer:)")
_ENDS_IN_JSON = re.compile(r"\}\s*\]?\s*(?:```\s*)?\Z")
_MARKS = (
    *("<function=", "<invoke name=", "<tool_call>", "<function_call>", "[TOOL_CALLS]", "<|python_tag|>"),
    *("<|tool_call", "<\uff5ctool\u2581call\u2581begin\uff5c>", "<|action_start|>"),
    *("<keystrokes", '"keystrokes"', '"action_input"', '"tool_name"', "<functioncall>", "functools["),
    *("<execute_", "<execute>", "<bash>", "<tool_use>", "<tool_calls>", "<tool_code>", "```tool_code"),
    *("<|channel|>commentary to=", "<|plugin|>", "\u273fFUNCTION\u273f", "<<function>>", "<bot_end>"),
    *("<function_calls>", "<search>"),
    *("<read_file>", "<write_to_file>", "<replace_in_file>", "<apply_diff>", "<execute_command>"),  # Cline's
    *("<list_files>", "<search_files>", "<attempt_completion>", "<use_mcp_tool>"),
)
"""Beginnings of calls in text, also in forms that are not read."""
_ACTION = re.compile(
    r"^(?:(?:Action|Act)(?: \d++| Input)?:|Function (?:Name|Input):|@\w++\([\w-]++\): \{)",
    re.MULTILINE | re.IGNORECASE,
)
"""A line that begins one."""
_RESPONSE = re.compile(
    r"\s*(?:OBSERVATION:|Observation(?: \d++)?:|EXECUTION RESULT of \[[^\]]*\]:|<tool_response>"
    r"|<function_results>)\s*"
)
_ANSWER = re.compile(
    r"\s*(?:<returncode>|New Terminal Output:|Current terminal state:|Exit code:|Output:|stdout:"
    r"|Results?(?: of [^\n:]*+)?:|The output of the OS:|\[\w++(?: for [^\]\n]*+)?\] Result:|<information>"
    r"|\[?(?:tool|function|command|execution|action)[ _](?:results?|outputs?|response)\b"
    r"|<(?:tool_|function_|execution_)?(?:results?|outputs?|observation|stdout)>)",
    re.IGNORECASE,
)
"""How other responses begin, which keep their beginning."""
_PROMPT = "bash-$"
"""How the responses of SWE-agent's first shells end."""
_MINI = "```mswea_bash_command"
"""How the commands of mini-swe-agent begin, which has a reader of its own."""
_TOOL = re.compile(r"[\w.:/-]+")
"""The name of a tool; JSON with another may as well be an answer."""
_CALL_NAMES = ("name", "tool_name", "tool", "function_name", "function", "action")
_CALL_ARGUMENTS = ("arguments", "args", "parameters", "params", "tool_input", "action_input", "input")
_LITERAL = 20_000
"""The most characters of a literal of Python, whose parser needs much more memory than JSON's."""
_RESPONSE_ENDS = ("</tool_response>", "</function_results>")


def with_calls(
    messages: MutableSequence[ir.Message], losses: Losses, *, among_calls: bool = False
) -> Iterator[ir.Message]:
    """Take messages, and yield them with calls in the agent's texts and responses in the user's as such.

    A text that has the beginning of a call, but none that is read, is a suspect loss, and so is the text
    before what only a tool responds.

    Args:
        messages: the messages of a run, of which none is left.
        losses: gets the suspects.
        among_calls: whether to read a run that has calls, since those are from texts, too.
    """
    earlier = islice(messages, max(len(messages) - 1, 0))  # a log's answer may have calls, and no request
    has_calls = any(isinstance(part, ir.ToolCall) for part in ir.parts_in(earlier))
    if has_calls and not among_calls:
        yield from _taken(messages)
        return
    before: ir.Message | None = None
    called: list[str] = []  # the tools that the next text of the user responds to
    for message in _taken(messages):
        if message.role in ("user", "tool") and not (called or has_calls):
            _suspect(before, message, losses)
        parts = message.parts
        if message.role == "assistant":
            parts = tuple(new for part in parts for new in _called(part, losses))
            called = [part.name for part in parts if isinstance(part, ir.ToolCall)]
            called = [] if any(isinstance(part, ir.ToolCallResponse) for part in parts) else called
        elif message.role == "user" and called:
            is_final = all(map(ending_by, called))  # then only a text with the mark of a response answers
            parts, called = tuple(_answered(part, is_final=is_final) for part in parts), []
        before = ir.Message(message.role, parts, message.at)
        yield before


def _taken(messages: MutableSequence[ir.Message]) -> Iterator[ir.Message]:
    messages.reverse()
    while messages:
        yield messages.pop()


def _suspect(before: ir.Message | None, message: ir.Message, losses: Losses) -> None:
    """Suspect the agent's text before a text that reads like the response to a call."""
    text = ir.join_texts(message.parts)
    is_answer = (
        message.role == "tool"
        or _RESPONSE.match(text) is not None
        or _ANSWER.match(text) is not None
        or text.rstrip().endswith(_PROMPT)
    )
    said = ir.join_texts(before.parts) if before and before.role == "assistant" else ""
    if said and (is_answer or _is_command(said)) and not _has_mark(ir.Text(said)):  # else it is one already
        losses.add_unknown(UNREAD, said, {"text": said})


def _is_command(text: str) -> bool:
    """Check for a command or the name of an action in JSON, which as the last text may be the answer."""
    if _MINI in text:
        return True
    match parse_json(text.strip().removeprefix("```json").removesuffix("```").strip()):
        case {"command": str()} | {"cmd": str()}:
            return True
        case {"action": str(name)}:
            return _TOOL.fullmatch(name) is not None
    return False


def _has_mark(part: ir.Part) -> bool:
    return isinstance(part, ir.Text) and (
        any(mark in part.content for mark in _MARKS) or _ACTION.search(part.content) is not None
    )


def _called(part: ir.Part, losses: Losses) -> Iterator[ir.Part]:
    if not isinstance(part, ir.Text) or not (_has_mark(part) or _ENDS_IN_JSON.search(part.content)):
        yield part
        return
    text, calls = _of_json(part.content, losses) or _split(part.content)
    if not calls and _has_mark(ir.Text(text)):
        losses.add_unknown(UNREAD, part.content, {"text": part.content})
    if text:
        yield ir.Text(text)
    yield from calls


def _split(text: str) -> tuple[str, Sequence[ir.Part]]:
    """Return the text before the calls at the end of a text, and the calls."""
    calls: list[ir.ToolCall] = []
    start, end = len(text), 0
    for found in _CALL.finditer(text):
        if calls and not _is_between(text[end : found.start()]):
            calls.clear()
        if (call := _call(found)) is None:
            calls.clear()
            continue
        if not calls:
            start = found.start()
        calls.append(call)
        end = found.end()
    if calls and _is_between(text[end:]):
        return _without_end(text[:start], ("<tool_call>", "<function_calls>")), calls
    if not calls and (action := _REACT.search(text) or _REACT_IN_BRACKETS.search(text)):
        call = ir.ToolCall(action["name"].strip(), action["input"].strip())
        return text[: action.start()].rstrip(), [call, *_told(action.groupdict().get("output"))]
    return text, []


def _told(output: str | None) -> list[ir.Part]:
    """Return what a text tells behind a call: its response, and what the agent said and called then."""
    if not output or not output.strip():
        return []
    response, *then = _THEN.split(output.strip(), 1)
    text, calls = _split("".join(then))
    return [ir.ToolCallResponse(response), *([ir.Text(text)] if text else []), *calls]


def _of_json(text: str, losses: Losses) -> tuple[str, list[ir.ToolCall]] | None:
    """Return the text around the JSON object at the end of a text, and its calls; None in any other form."""
    text = text.rstrip()
    if text.startswith("["):  # LLaMA-Factory's, of several calls
        return _called_in_list(parse_json(text), losses)
    is_fenced = text.endswith("```")
    for start in (text.rfind("```", 0, -3),) if is_fenced else (text.find("{"), text.rfind("\n{") + 1):
        block = text[start:].removeprefix("```").removeprefix("json").removesuffix("```").strip()
        value = parse_json(block) if start >= 0 else None
        if isinstance(value, dict):
            return _called_in(value, text[:start].rstrip().removesuffix("Action:").rstrip(), losses)
    return None


def _called_in_list(values: Any, losses: Losses) -> tuple[str, list[ir.ToolCall]] | None:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        return None
    found = [_called_in(value, "", losses) for value in values]
    calls = [call for each in found if each is not None for call in each[1]]
    return ("", calls) if len(calls) == len(values) else None


def _called_in(value: dict[str, Any], before: str, losses: Losses) -> tuple[str, list[ir.ToolCall]] | None:
    match value:
        case {"commands": [*commands], **rest} if all(map(_is_keystrokes, commands or [rest])):
            texts = [member for member in rest.values() if isinstance(member, str)]
            losses.add(
                "members beside commands in text",
                [member for member in rest.values() if not isinstance(member, str)],
            )
            calls = [ir.ToolCall("bash_command", command) for command in commands]
            return "\n".join(filter(None, [before, *texts])), calls
    names = [name for name in _CALL_NAMES if isinstance(value.get(name), str)]
    given = [name for name in _CALL_ARGUMENTS if name in value]
    if not names or not given:
        return None
    name, arguments = value[names[0]], value[given[0]]
    is_call = _TOOL.fullmatch(name) and isinstance(parse_json(arguments), dict)
    if not is_call and given[0] != "action_input":
        return None
    losses.add("members beside a call in text", [value[name] for name in value.keys() - {names[0], given[0]}])
    if name.lower() == "final answer":
        return "\n".join(filter(None, [before, as_text(arguments)])), []
    return before, [ir.ToolCall(name, arguments)]


def _is_keystrokes(command: Any) -> bool:
    """Check for a command, or for the members beside no command."""
    return isinstance(command, dict) and (
        isinstance(command.get("keystrokes"), str)
        or not {"task_complete", "is_task_complete"}.isdisjoint(command)
    )


def _is_between(text: str) -> bool:
    """Check for a text that only closes or opens the elements around calls."""
    return not re.sub(r"</?(?:tool_call|function_calls)>|<\|im_end\|>|\s", "", text)


def _call(found: re.Match[str]) -> ir.ToolCall | None:
    if found["json"] is not None:
        match _literal(found["json"]):
            case {"name": str(name), **rest}:
                return ir.ToolCall(name, rest.get("arguments", rest.get("parameters")))
        return None
    name, body = found["name"] or found["invoked"], found["body"] or found["invocation"] or ""
    if found["name"] and not found["closed"] and (_PARAMETER.sub("", body).strip() or not body.strip()):
        return None
    arguments = {
        parameter["name"] or parameter["named"]: as_text(
            parameter["value"] if parameter["name"] else parameter["given"]
        ).strip("\n")
        for parameter in _PARAMETER.finditer(body)
    }
    return ir.ToolCall(name, arguments or parse_json(body.strip()) or {})


def _literal(text: str) -> Any:
    """Return the value of JSON, or of a literal of Python without others' values, as Hermes' data has it."""
    value = parse_json(text)
    if not isinstance(value, str) or len(value) > _LITERAL:
        return value
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know
            return json.loads(json.dumps(ast.literal_eval(value)))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def _answered(part: ir.Part, *, is_final: bool) -> ir.Part:
    """Return the text after a call as its response, without the mark of one if it has that."""
    if not isinstance(part, ir.Text):
        return part
    if (beginning := _RESPONSE.match(part.content)) is None:
        return part if is_final else ir.ToolCallResponse(part.content)
    return ir.ToolCallResponse(_without_end(part.content[beginning.end() :], _RESPONSE_ENDS))


def _without_end(text: str, ends: tuple[str, ...]) -> str:
    """Return a text without trailing space and without one of these ends."""
    text = text.rstrip()
    end = next((ending for ending in ends if text.endswith(ending)), "")
    return text.removesuffix(end).rstrip()
