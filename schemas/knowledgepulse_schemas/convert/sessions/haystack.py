"""Messages of Haystack.

Source: https://docs.haystack.deepset.ai/docs/chatmessage.
Compared with: its own types.
"""

from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "haystack",
    __doc__,
    "role meta content",
    {"role": str, "meta": dict, "content": list},
    "=role",
    "content",
    within="",
)
