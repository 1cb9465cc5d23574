"""ShareGPT's conversations, which data sets have.

Source: a custom of data sets.
Compared with: rows of data sets.
"""

from knowledgepulse_schemas.convert.common.pattern import at
from knowledgepulse_schemas.convert.sessions.table import of_messages_alike

FORMAT = of_messages_alike(
    "sharegpt",
    __doc__,
    "conversations",
    {"from": str, "value": str},
    at("from"),
    at("value"),
    within=("conversations",),
)
