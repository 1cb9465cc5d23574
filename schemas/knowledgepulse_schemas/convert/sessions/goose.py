"""What ``goose session export --format json`` and ``goose run --output-format json`` write.

Source: https://github.com/block/goose.
Compared with: its source; no public files.
"""

from knowledgepulse_schemas.convert.common.pattern import at
from knowledgepulse_schemas.convert.sessions.goose_lines import SPOKEN
from knowledgepulse_schemas.convert.sessions.table import of_messages_alike

FORMAT = of_messages_alike(
    "goose",
    __doc__,
    "conversation working_dir",
    SPOKEN,
    at("role"),
    at("content"),
    time=(at("created"),),
    within=("conversation", "messages"),
    coding_agent=True,
)
