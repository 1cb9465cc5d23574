"""Messages of Pydantic AI, as ``all_messages_json()`` writes them.

Source: https://ai.pydantic.dev/message-history/.
Compared with: its own types.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table

_MESSAGE = {"kind": {"request", "response"}, "parts": list}
FORMAT = Table(
    "pydantic_ai",
    __doc__,
    "parts kind",
    first=(_MESSAGE,),
    lines=(Line(_MESSAGE, at("kind"), at("parts"), stop=(at("finish_reason"),)),),
    time=(at("timestamp"),),
    within=(),
)
