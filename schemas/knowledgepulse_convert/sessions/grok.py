"""Sessions of Grok: ``~/.grok/sessions/*/chat_history.jsonl``.

Source: none is published.
Compared with: files of another project's tests.
"""

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
        Line("backend_tool_call", "assistant", Block("tool_call", at("kind"))),
        Line({"system", "user"}, at("type"), at("content")),
        Line("reasoning", "assistant", Texts("reasoning", at("summary"))),
        Line("assistant", "assistant", (at("content"), at("tool_calls")), model=at("model_id")),
        Line("tool_result", "tool", Block("tool_result")),
    ),
    coding_agent=True,
    places={"Grok": ("~/.grok/sessions/**/chat_history.jsonl",)},
)
