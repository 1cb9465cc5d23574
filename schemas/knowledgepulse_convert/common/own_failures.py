"""What programs themselves write as the result of a tool that failed, in place of what the tool returned."""

from knowledgepulse_convert.common.pattern import any_of

is_own_failure = any_of(
    {"status": "error", "message": "An internal error occurred."},  # ADK for Java
    {"error": True, "name": str, "message": str, "toolCallId": str, "toolName": str},  # VoltAgent
)
"""Check whether the result of a tool is a program's, and says that the tool failed."""
