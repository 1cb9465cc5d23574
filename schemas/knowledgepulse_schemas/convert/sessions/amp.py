"""Threads of Amp: ``~/.local/share/amp/threads/*.json``.

Source: none is published.
Compared with: its own types; no public files.
"""

from knowledgepulse_schemas.convert.sessions.table import Line, Table, document_format_of

FORMAT = document_format_of(
    Table(
        "amp",
        __doc__,
        "v messages messageId",
        ({"role": {"user", "assistant", "info"}, "messageId": ..., "content": list},),
        (
            Line({"role": "info"}, "system", "content"),
            Line({"role": str}, "=role", "content", stop="state.type state.stopReason"),
        ),
        within="messages",
        known="messageId",
        ended=True,
    )
)
