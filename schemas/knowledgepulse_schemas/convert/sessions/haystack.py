"""Messages of Haystack.

Source: https://docs.haystack.deepset.ai/docs/chatmessage.
Compared with: its own types.
"""

from knowledgepulse_schemas.convert.common.pattern import at
from knowledgepulse_schemas.convert.sessions.table import of_messages_alike

FORMAT = of_messages_alike(
    "haystack",
    __doc__,
    "role meta content",
    {"role": str, "meta": dict, "content": list},
    at("role"),
    at("content"),
    within=(),
)
