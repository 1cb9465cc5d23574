"""Threads of Amp: ``~/.local/share/amp/threads/*.json``.

Source: none is published.
Compared with: its own types; no public files.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table

FORMAT = Table(
    "amp",
    __doc__,
    "v messages messageId",
    first=({"role": {"user", "assistant", "info"}, "messageId": ..., "content": list},),
    lines=(
        Line({"role": "info"}, "system", at("content")),
        Line({"role": str}, at("role"), at("content"), stop=(at("state", "type"), at("state", "stopReason"))),
    ),
    within=("messages",),
    known=(at("messageId"),),
    coding_agent=True,
    places={"Amp": ("~/.local/share/amp/threads/*.json",)},
)
