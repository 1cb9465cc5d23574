"""Sessions of Kimi Code: ``~/.kimi-code/sessions/*/*/agents/*/wire.jsonl``, of protocol 1.4 and 1.5.

Source: https://github.com/MoonshotAI/kimi-cli.
Compared with: files of another project's tests, and runs of 2.1.
"""

import re

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.words import words
from knowledgepulse_convert.sessions.table import Line, Table

_BESIDE = words(
    """
    agent. config. file_history. full_compaction. llm. mcp. metadata permission. plan_mode. plugin. profile.
    prompt. runtime. token_counting. tools. turn. usage.
    """
)
"""How kinds of lines begin that tell what others do, or nothing of the conversation."""
FORMAT = Table(
    "kimi",
    __doc__,
    "type protocol_version",
    first=({"type": "metadata", "protocol_version": str},),
    lines=(
        Line({"type": "turn.prompt", at("origin", "kind"): "user"}, "user", at("input"), may_repeat=True),
        Line(
            {"type": "context.append_message", at("message", "origin", "kind"): {"user", None}},
            at("message", "role"),
            at("message", "content"),
            may_repeat=True,
        ),
        Line(
            {"type": "context.append_message", at("message", "origin", "name"): "subagent"},
            at("message", "role"),
            at("message", "content"),
        ),
        Line("turn.cancel", ended=at("type")),
        Line("context.append_message", "system", at("message", "content")),
        Line(
            {"type": "context.append_loop_event", at("event", "type"): "step.end"},
            ended=at("event", "finishReason"),
        ),
        Line({"type": "context.append_loop_event", at("event", "type"): "step.begin"}, is_beside=True),
        Line("context.append_loop_event", "assistant", at("event")),
        Line("context.apply_compaction", "system", at("summary")),
        Line(tuple(_BESIDE), is_beside=True),
    ),
    time=(at("time"),),
    coding_agent=True,
    places={"Kimi Code": ("~/.kimi-code/sessions/*/*/agents/*/wire.jsonl",)},
    ids_in_path=re.compile(r"/(?P<session>[^/]+)/agents/(?P<agent>[^/]+)/wire\.jsonl\Z"),
)
