"""Messages, one per line, as ``kimi -p --output-format stream-json`` prints them.

Accepts: messages of any vendor, one per line, such as Hermes' sessions, and what ``kimi --output-format
    stream-json`` prints.
Source: a custom of several programs.
Compared with: public files of 2026.
"""

from knowledgepulse_schemas.convert.common import hub
from knowledgepulse_schemas.convert.sessions.table import Line, Table, lines_format_of

_CHAT = {"role": set(hub.ROLES), "message": None, "type": None, "parts": None}
FORMAT = lines_format_of(
    Table(
        "chat_lines",
        __doc__,
        "role content",
        tuple(_CHAT | layout for layout in ({"content": str}, {"content": list}, {"tool_calls": list})),
        (
            Line({"role": {"meta", "_checkpoint", "_usage"}}, sets={"id": "session_id"}, beside=True),
            Line(
                {"role": "session_meta"}, sets={"id": "session_id", "model": "model"}, tools="tools"
            ),  # Hermes
            Line({"role": "_system_prompt"}, "system", "content"),
            Line(_CHAT, "=role", "=", stop="finish_reason"),
        ),
    )
)
