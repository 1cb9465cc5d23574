"""What programs themselves write as the result of a tool that failed, in place of what the tool returned."""

from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import parse_json

_BEGINNINGS = ('{"status": "error", "message"', '{"status":"error","message"', '{"error":')
_is_own = any_of(
    {"status": "error", "message": "An internal error occurred."},  # ADK for Java
    {"error": True, "name": str, "message": str, "toolCallId": str, "toolName": str},  # VoltAgent
)


def is_own_failure(result: str) -> bool:
    """Return whether the result of a tool is a program's, and says that the tool failed."""
    return result.startswith(_BEGINNINGS) and _is_own(parse_json(result))
