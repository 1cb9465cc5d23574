"""ShareGPT's conversations, which data sets have.

Source: a custom of data sets.
Compared with: rows of data sets.
"""

from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "sharegpt",
    __doc__,
    "conversations",
    {"from": str, "value": str},
    "=from",
    "value",
    within="conversations",
)
