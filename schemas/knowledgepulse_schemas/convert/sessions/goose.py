"""What ``goose session export --format json`` and ``goose run --output-format json`` write.

Source: https://github.com/block/goose.
Compared with: its source; no public files.
"""

from knowledgepulse_schemas.convert.sessions.goose_lines import SPOKEN
from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "goose",
    __doc__,
    "conversation working_dir",
    SPOKEN,
    "=role",
    "content",
    at="created",
    within="conversation messages",
    coding_agent=True,
)
