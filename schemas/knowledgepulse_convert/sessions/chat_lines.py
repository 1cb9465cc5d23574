"""Messages, one per line, as ``kimi -p --output-format stream-json`` prints them.

Accepts: messages of any vendor, one per line, such as Hermes' sessions, and what ``kimi --output-format
    stream-json`` prints.
Source: a custom of several programs.
Compared with: public files of 2026.
"""

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table, VendorMessage

_CHAT = {"role": set(ir.ROLES), "message": None, "type": None, "parts": None}
FORMAT = Table(
    "chat_lines",
    __doc__,
    "role content",
    first=tuple(_CHAT | layout for layout in ({"content": str}, {"content": list}, {"tool_calls": list})),
    lines=(
        Line({"role": {"meta", "_checkpoint", "_usage"}}, id=at("session_id"), is_beside=True),
        Line({"_type": "metadata"}, is_beside=True),  # nanobot
        Line({"role": "session_meta"}, id=at("session_id"), model=at("model"), tools=at("tools")),  # Hermes
        Line({"role": "_system_prompt"}, "system", at("content")),
        Line(
            _CHAT,
            at("role"),
            VendorMessage(),
            stop=(at("finish_reason"), at("response_meta", "finish_reason")),
        ),
    ),
    only_lines=True,
    unrecorded=("finish reasons",),
    places={"nanobot": ("~/.nanobot/sessions/*/*.jsonl", "~/.nanobot/workspace/sessions/*.jsonl")},
)
