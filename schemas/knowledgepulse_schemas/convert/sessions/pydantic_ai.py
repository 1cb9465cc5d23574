"""Messages of Pydantic AI, as ``all_messages_json()`` writes them.

Source: https://ai.pydantic.dev/message-history/.
Compared with: its own types.
"""

from knowledgepulse_schemas.convert.common.pattern import at
from knowledgepulse_schemas.convert.sessions.table import of_messages_alike

FORMAT = of_messages_alike(
    "pydantic_ai",
    __doc__,
    "parts kind",
    {"kind": {"request", "response"}, "parts": list},
    at("kind"),
    at("parts"),
    time=(at("timestamp"),),
    within=(),
)
