"""Messages of Microsoft's Agent Framework.

Source: https://github.com/microsoft/agent-framework.
Compared with: its own types.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table

_MESSAGE = {"type": "chat_message", "contents": list}
FORMAT = Table(
    "agent_framework",
    __doc__,
    "messages type contents",
    first=(_MESSAGE,),
    lines=(Line(_MESSAGE, at("role", "value"), at("contents"), stop=(at("finish_reason"),)),),
    time=(),
    within=("messages",),
)
