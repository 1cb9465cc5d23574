"""OpenAI chat messages and Responses API items.

Accepts: chat messages; Responses items (also ``result.to_input_list()`` of the Agents SDK); a completion
    with its ``messages`` or a response with its ``input``, such as ``{**completion.model_dump(),
    "messages": messages}``, or a log's ``{"messages": …, "response": …}``; a data set's row with messages,
    also as JSON text, in ``messages``, ``conversations``, ``trajectory`` or ``history``, or in ``prompt``
    and ``completion``.
Source: https://platform.openai.com/docs/api-reference/chat and …/responses; the types of ``openai``.
Compared with: the types of ``openai`` 3.54, and public files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, of_messages
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    FromText,
    Id,
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    parse_json,
    parse_time,
    read,
    read_record,
    without,
)
from knowledgepulse_convert.common.statuses import is_failure, told_by
from knowledgepulse_convert.messages.blocks import Block, contents_of, is_failed, text_of
from knowledgepulse_convert.messages.definitions import definitions_of

_BESIDE = {"item_reference", "compaction", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"}
"""Types of items that hold no message or call."""
_TOOLS = ("function", "namespace")
"""Types of blocks in the output of a search for tools."""
_CALLS = {"function_call", "custom_tool_call", "mcp_call"}


def nested_function(call: Any, name: str = "name") -> Any:
    """Return a tool call of this form from one with ``arguments`` and ``name`` at its top."""
    if not isinstance(call, dict) or not isinstance(call.get(name), str):
        return call
    rest = without(call, name, "arguments")
    return {**rest, "function": {"name": call[name], "arguments": call.get("arguments")}}


class _Called(InputModel):
    name: str
    arguments: Any = None
    input: Any = None


class _ToolCall(InputModel):
    id: str | None = None
    type: str | None = None
    function: _Called | None = None
    custom: _Called | None = None


class _Item(InputModel):
    """A chat message or a Responses API item."""

    type: str | None = None
    role: str | None = None
    id: Id = None
    status: str | None = None
    content: str | list[str | Block] | None = None
    name: str | None = None
    # chat message
    reasoning: str | list[Block] | None = None  # OpenRouter, vLLM
    reasoning_content: str | None = None  # DeepSeek, LiteLLM
    refusal: str | None = None
    tool_calls: Annotated[
        list[Annotated[_ToolCall, FromText, BeforeValidator(nested_function)]] | None, FromText
    ] = None
    function_call: Annotated[_Called | None, FromText] = None
    tool_call_id: str | None = None
    # Responses API item
    call_id: str | None = None
    arguments: Any = None
    input: Any = None
    output: Any = None
    summary: list[Block] | None = None
    server_label: str | None = None
    error: Any = None

    @property
    def is_hosted_call(self) -> bool:
        """Whether it is a hosted tool's call, whose other members are arguments and results."""
        kind = self.type or ""
        return self.role is None and kind.endswith("_call") and kind not in _CALLS


class _Choice(InputModel):
    index: int = 0
    finish_reason: str | None = None
    message: _Item


class _Record(InputModel):
    """Messages with their completion, or a response with its input."""

    id: Id = None
    object: str | None = None
    messages: list[Any] | None = None
    choices: list[_Choice] | None = None
    input: str | list[Any] | None = None
    output: list[Any] | None = None
    status: str | None = None
    error: Any = None
    instructions: str | list[Any] | None = None
    tools: Annotated[list[Any] | None, FromText] = None
    created: float | None = None
    created_at: float | None = None
    completed_at: float | None = None
    metadata: Any = None


def _recognises(document: Any) -> bool:
    """Check for chat messages, Responses items, or a record of them, all of which can be read."""
    documents = document if isinstance(document, list) else [document]
    if records := list(filter(_is_record, documents)):
        return any(_fit(record.get("messages", record.get("input"))) for record in records)
    return are_items(document) and _fit(document)


def messages_of(items: list[Any], path: str, losses: Losses, lost_at: str | None = None) -> list[ir.Message]:
    """Convert chat messages or Responses items; ``lost_at`` is a message's path in the loss report.

    Raises:
        ConversionError: an item is neither.
    """
    lost_at = f"{path}[]" if lost_at is None else lost_at
    messages = []
    for number, value in enumerate(items):
        item = read(_Item, _renamed(value), f"{path}[{number}]")
        convert = _message if item.role is not None else _of_item
        messages.append(convert(item, f"{path}[{number}]", lost_at, losses))
        if _is_empty_response(messages[-1]):  # the response may be in a member that is not known
            losses.add_unknown(f"{lost_at} of an empty response", item.model_extra)
        elif not item.is_hosted_call:
            count_unmapped(item, lost_at, losses)
    return messages


def _renamed(item: Any) -> Any:
    """Return an item whose calls and results stand where this format has them.

    LlamaIndex in TypeScript keeps both in options, the results in those of a "user"; ms-swift has own roles.
    """
    match item:
        case {"role": str(role), "options": {"toolCall": list(calls), **others}, **rest}:
            told: dict[str, Any] = {"role": role, "tool_calls": [_renamed_call(call) for call in calls]}
            return rest | told | ({"options": others} if others else {})
        case {"options": {"toolResult": dict(result), **others}, "content": content, **rest}:
            unread = [value for value in without(result, "id", "isError").values() if value != content]
            told = {"role": "tool", "tool_call_id": result.get("id"), "content": content}
            failed = {"isError": True} if result.get("isError") else {}
            return rest | told | failed | {"options": [others, *unread]}
        case {"role": "tool_call", "content": str(text), **rest}:
            return rest | {"role": "assistant", "tool_calls": [nested_function(parse_json(text))]}
        case {"role": "tool_response", **rest}:
            return rest | {"role": "tool"}
    return item


def _renamed_call(call: Any) -> Any:
    match call:
        case {"name": str(name), "input": arguments, **rest}:
            return rest | {"function": {"name": name, "arguments": arguments}}
    return call


def _is_empty_response(message: ir.Message) -> bool:
    return any(isinstance(part, ir.ToolCallResponse) and not part.response for part in message.parts)


def _run_of_record(document: Any, path: str) -> ir.Run:
    record, losses = read_record(_Record, document, path)
    losses.add("metadata", record.metadata)
    inputs = record.messages if record.messages is not None else record.input
    if inputs is None:
        raise ConversionError(f"{path or 'the document'}: neither `messages` nor `input`")
    if isinstance(inputs, str):
        inputs = [{"role": "user", "content": inputs}]
    name = "messages" if record.messages is not None else "input"
    messages = [*_instructions(record, losses), *messages_of(inputs, name, losses)]
    if record.choices:
        choice, *others = record.choices
        messages.append(_message(choice.message, "choices[0].message", "choices[0].message", losses))
        messages += ir.end_of(choice.finish_reason)
        for other in others:
            losses.add("choices[] after the first", other.message.content or other.finish_reason)
    if record.output is not None:
        messages += messages_of(record.output, "output", losses)
    ending = told_by(record.status)
    if record.error is not None or ending:
        problem = _error_text(record.error, "error", losses)
        messages.append(ir.message("assistant", ir.Error(problem, interruption=ending == "cut_off")))
    ended = record.completed_at or record.created_at or record.created
    is_llama_index = any(isinstance(item, dict) and isinstance(item.get("options"), dict) for item in inputs)
    unrecorded = ("finish reasons",) if is_llama_index else ()
    return ir.Run(messages, record.id, ended_at=parse_time(ended), losses=losses, unrecorded=unrecorded)


def _instructions(record: _Record, losses: Losses) -> Iterator[ir.Message]:
    yield from definitions_of(record.tools or [], "tools", losses)
    if isinstance(record.instructions, str):
        yield ir.message("system", ir.Text(record.instructions))
    elif record.instructions is not None:
        yield from messages_of(record.instructions, "instructions", losses)


def _message(item: _Item, path: str, lost_at: str, losses: Losses) -> ir.Message:
    """Convert an item with a role."""
    role = ir.role_of(item.role or "", path)
    content = contents_of(item.content, f"{lost_at}.content[]", losses)
    if role == "tool":
        text, failed = ir.join_texts(content), is_failed({**item.__dict__, **(item.model_extra or {})})
        if isinstance(item.error, str) and item.error not in text:
            text = "\n".join(filter(None, [text, item.error]))
        return ir.message(role, ir.ToolCallResponse(text, item.tool_call_id, item.name, failed))
    losses.add(f"{lost_at}.name", item.name)
    role = ir.without_example(role, item.name, item.tool_calls)
    thoughts = _thoughts(item.reasoning, f"{lost_at}.reasoning[]", losses)
    parts = [ir.reasoning(item.reasoning_content), *thoughts, *content]
    parts += _thoughts(item.summary, f"{lost_at}.summary[]", losses)
    if item.refusal:
        parts += [ir.Text(item.refusal), ir.Error(interruption=True)]
    for number, call in enumerate(item.tool_calls or ()):
        called = call.function or call.custom
        if called is None:
            raise ConversionError(f"{path}.tool_calls[{number}]: neither `function` nor `custom`")
        if (part := _tool_call(called, call.id)) not in content:  # an export has calls in both
            parts.append(part)
    if item.function_call is not None:
        parts.append(_tool_call(item.function_call, None))
    return ir.message(role, *parts)


def _thoughts(blocks: Any, path: str, losses: Losses) -> list[ir.Reasoning | None]:
    return [
        ir.reasoning(ir.text_of(part))
        for part in contents_of(blocks, path, losses)
        if isinstance(part, ir.Text | ir.Reasoning)
    ]


def _tool_call(called: _Called, call_id: str | None) -> ir.ToolCall:
    return ir.ToolCall(called.name, called.input if called.arguments is None else called.arguments, call_id)


def _of_item(item: _Item, path: str, lost_at: str, losses: Losses) -> ir.Message:
    """Convert an item without a role."""
    kind = item.type or ""
    if not kind:
        raise ConversionError(f"{path}: neither `role` nor `type`")
    if kind in _CALLS:
        return ir.message("assistant", *_call(item, item.arguments, [item.output], lost_at, losses))
    if item.is_hosted_call:
        return ir.message("assistant", *_hosted_call(item, lost_at, losses))
    if kind == "reasoning":
        thoughts = _thoughts(item.summary, f"{lost_at}.summary[]", losses)
        return ir.message("assistant", *thoughts, *_thoughts(item.content, f"{lost_at}.content[]", losses))
    if kind.endswith("_output"):
        text = _output_text(item.output, f"{lost_at}.output", losses)
        response = ir.ToolCallResponse(text, item.call_id or item.id, item.name, failed=_failed(item))
        return ir.message("tool", response)
    value = [item.content, item.arguments, item.input, item.output]
    if kind in _BESIDE:
        losses.add(f"{lost_at}.{kind}", value)
    else:
        losses.add_unknown(f"{lost_at}.{kind}", value, item.model_dump())
    return ir.message("assistant")


def _hosted_call(item: _Item, path: str, losses: Losses) -> Iterator[ir.Part]:
    members = dict(item.model_extra or {})
    members |= {
        name: value for name, value in (("arguments", item.arguments), ("input", item.input)) if value
    }
    losses.add(f"{path}.result", members.pop("result", None))  # an image
    results = [item.output, *(members.pop(name, None) for name in ("outputs", "results"))]
    yield from _call(item, members or None, results, path, losses)


def _call(item: _Item, arguments: Any, results: list[Any], path: str, losses: Losses) -> Iterator[ir.Part]:
    """Yield a call, and its response if the same item contains it."""
    name, call_id = item.name or (item.type or "").removesuffix("_call"), item.call_id or item.id
    yield ir.ToolCall(
        name, item.input if arguments is None else arguments, call_id, mcp_server=item.server_label
    )
    answers = [_output_text(result, f"{path}.output", losses) for result in results if result]
    if item.error:
        answers.append(_error_text(item.error, f"{path}.error", losses))
    if answers or _failed(item):
        yield ir.ToolCallResponse("\n".join(answers), call_id, name, failed=_failed(item))


def _failed(item: _Item) -> bool:
    return is_failure(item.status) or bool(item.error) or _is_of_failed_command(parse_json(item.output))


def _is_of_failed_command(output: Any) -> bool:
    """Check what a shell printed for a command that failed; the API's shell runs several at once."""
    match output:
        case [*outputs]:
            return any(map(_is_of_failed_command, outputs))
        case {"outcome": {"type": "timeout"}}:
            return True
        case {"outcome": {"exit_code": code}} | {"metadata": {"exit_code": code}}:  # the local shell's
            return code not in (None, 0)
    return False


def _output_text(output: Any, path: str, losses: Losses) -> str:
    if isinstance(output, list) and all(isinstance(block, dict) and "type" in block for block in output):
        for tool in (block for block in output if block["type"] in _TOOLS):
            losses.add(f"{path}[].{tool['type']}", tool)
        blocks = [block for block in output if block["type"] not in _TOOLS]
        return text_of(blocks, f"{path}[]", losses)
    return as_text(output)


def _error_text(error: Any, path: str, losses: Losses) -> str:
    match error:
        case {"message": str(message), **rest}:
            count_others(rest, set(), path, losses)
            return message
    return as_text(error)


def are_items(values: Any) -> bool:
    """Check for a list of messages and items, at least one of which has the members of this format."""
    if not isinstance(values, list) or not all(isinstance(item, dict) for item in values):
        return False
    typed = all("role" in item or isinstance(item.get("type"), str) for item in values)
    return typed and any(_is_distinctive(item) for item in values)


def _is_distinctive(item: dict[str, Any]) -> bool:
    if isinstance(item.get("role"), str):
        return "content" in item or "tool_calls" in item
    return str(item.get("type")).endswith(("_call", "_call_output", "reasoning"))


def _is_record(value: Any) -> bool:
    if not isinstance(value, dict) or "role" in value:
        return False
    inputs = value.get("messages", value.get("input"))
    if isinstance(inputs, str):
        return value.get("object") == "response"
    return are_items(inputs)


def _fit(values: str | list[dict[str, Any]]) -> bool:
    """Check that all messages and items can be read as this format's."""
    try:
        return isinstance(values, str) or all(
            role is None or role in ir.ROLES for role in (read(_Item, _renamed(item)).role for item in values)
        )
    except ConversionError:
        return False


FORMAT = InputFormat(
    "openai",
    __doc__,
    "role content",
    *of_messages(_recognises, lambda items: not any(map(_is_record, items)), messages_of, _run_of_record),
)
