"""ShareGPT's conversations, which data sets have.

Source: a custom of data sets.
Compared with: rows of data sets.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table

_MESSAGE = {"from": str, "value": str}
FORMAT = Table(
    "sharegpt",
    __doc__,
    "conversations",
    first=(_MESSAGE,),
    lines=(Line(_MESSAGE, at("from"), at("value"), stop=(at("finish_reason"),)),),
    time=(),
    within=("conversations",),
)
