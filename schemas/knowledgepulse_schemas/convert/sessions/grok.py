"""Sessions of Grok: ``~/.grok/sessions/*/chat_history.jsonl``.

Source: none is published.
Compared with: files of another project's tests.
"""

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

FORMAT = format_of(
    Table(
        "grok",
        __doc__,
        "type content prompt_index",
        (
            {"type": "user", "prompt_index": int},
            {"type": "user", "synthetic_reason": str},
            {"type": "assistant", "model_fingerprint": str},
        ),
        (
            Line({"type": "user", "synthetic_reason": "interjection"}, "user", "content"),
            Line({"type": "user", "synthetic_reason": str}, "system", "content"),
            Line("backend_tool_call", "assistant", "kind=tool_call"),
            Line({"system", "user"}, "=type", "content"),
            Line("reasoning", "assistant", "summary:reasoning"),
            Line("assistant", "assistant", "content tool_calls", sets={"model": "model_id"}),
            Line("tool_result", "tool", "=tool_result"),
        ),
        coding_agent=True,
    )
)
