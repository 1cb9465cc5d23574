"""Sessions of Grok: ``~/.grok/sessions/*/chat_history.jsonl``.

Source: none is published.
Compared with: the sessions of Grok 1.0.41; files of another project's tests.
"""

import re

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Block, Line, Table, Texts

FORMAT = Table(
    "grok",
    __doc__,
    "type content prompt_index",
    first=(
        {"type": "user", "prompt_index": int},
        {"type": "user", "synthetic_reason": str},
        {"type": "assistant", "model_fingerprint": str},
    ),
    lines=(
        Line({"type": "user", "synthetic_reason": "interjection"}, "user", at("content")),
        Line({"type": "user", "synthetic_reason": str}, "system", at("content")),
        Line({"type": "user", "prompt_index": None}, "system", at("content")),
        Line("backend_tool_call", "assistant", Block("tool_call", at("kind"))),
        Line({"system", "user"}, at("type"), at("content")),
        Line("reasoning", "assistant", Texts("reasoning", at("summary"))),
        Line("assistant", "assistant", (at("content"), at("tool_calls")), model=at("model_id")),
        Line("tool_result", "tool", Block("tool_result")),
    ),
    wrapper=re.compile("<(user_query)>"),
    coding_agent=True,
    places={"Grok": ("~/.grok/sessions/**/chat_history.jsonl",)},
)
