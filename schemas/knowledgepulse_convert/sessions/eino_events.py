"""Events of Eino's agents, one per line, as `json.Marshal` writes what the runner of its ADK yields.

They have no request: the messages that the agent was given may stand before them, or `--objective` gives it.

Source: https://github.com/cloudwego/eino, `adk/interface.go`.
Compared with: runs of 0.7.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table, VendorMessage

_OUTPUT = at("Output", "MessageOutput")
_MESSAGE = at(*_OUTPUT.names, "Message")
FORMAT = Table(
    "eino_events",
    __doc__,
    "AgentName RunPath Output Action Err",
    first=({"AgentName": str, "RunPath": ..., "Output": ...},),
    lines=(
        Line({"role": str}, at("role"), VendorMessage()),
        Line({at("Action", "Interrupted"): dict}, stop=(at("Action", "Interrupted", "Data"),), ended=False),
        Line({"Err": dict}, error=at("Err")),
        Line(
            {_MESSAGE: dict},
            at(*_OUTPUT.names, "Role"),
            VendorMessage(_MESSAGE),
            stop=(at(*_MESSAGE.names, "response_meta", "finish_reason"),),
        ),
        Line({"Output": None}, is_beside=True),
    ),
    known=(at("AgentName"), at(*_OUTPUT.names, "IsStreaming"), at(*_OUTPUT.names, "ToolName")),
    time=(),
)
