"""Messages of Haystack.

Source: https://docs.haystack.deepset.ai/docs/chatmessage.
Compared with: its own types.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table

_MESSAGE = {"role": str, "meta": dict, "content": list}
FORMAT = Table(
    "haystack",
    __doc__,
    "role meta content",
    first=(_MESSAGE,),
    lines=(Line(_MESSAGE, at("role"), at("content"), stop=(at("finish_reason"),)),),
    time=(),
    within=(),
)
