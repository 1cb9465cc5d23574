"""What ``goose session export --format json`` and ``goose run --output-format json`` write.

Source: https://github.com/block/goose.
Compared with: its source; no public files.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.goose_lines import SPOKEN
from knowledgepulse_convert.sessions.table import Line, Table

FORMAT = Table(
    "goose",
    __doc__,
    "conversation working_dir",
    first=(SPOKEN,),
    lines=(Line(SPOKEN, at("role"), at("content"), stop=(at("finish_reason"),)),),
    time=(at("created"),),
    within=("conversation", "messages"),
    coding_agent=True,
)
