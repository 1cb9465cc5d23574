"""Sessions of Qwen Code: ``~/.qwen/projects/*/chats/*.jsonl``.

Source: https://github.com/QwenLM/qwen-code.
Compared with: files of another project's tests.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table

FORMAT = Table(
    "qwen_code",
    __doc__,
    "uuid parentUuid sessionId message",
    first=(
        {"uuid": str, "sessionId": str, at("message", "parts"): list},
        {"uuid": str, "sessionId": str, "systemPayload": dict},
    ),
    lines=(
        Line({"type": "user", "subtype": "notification"}, "system", at("message", "parts")),
        Line(
            {"user", "assistant", "tool_result"},
            at("type"),
            at("message", "parts"),
            id=at("sessionId"),
            cwd=at("cwd"),
            model=at("model"),
            flags=(at("toolCallResult"), at("toolCallResult", "resultDisplay")),
        ),
        Line("system", is_beside=True),
    ),
    agent=(at("agentId"),),
    coding_agent=True,
    unrecorded=("finish reasons",),
    places={"Qwen Code": ("~/.qwen/projects/*/chats/*.jsonl", "~/.qwen/projects/*/subagents/*/*.jsonl")},
)
