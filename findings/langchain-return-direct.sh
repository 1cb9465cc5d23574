#!/usr/bin/env bash
# Expected: the messages of a LangChain agent tell whether a tool's result was its answer (`return_direct`), or whether the run broke
#   off behind the tool.
# Seen: they do not. Both end with the tool's message, which has the same members in both; only what LangChain answers in a schema
#   is told, by the text "Returning structured response: …".
# Versions: langchain 1.5.2, langgraph 1.2.24, 2026-11-29
# So: docs/reference/conversion.md says that such a run looks as one that was cut off, and has to be given its outcome.
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages langchain==1.5.2 langgraph==1.2.24

cat >run.py <<'PY'
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel


class Model(GenericFakeChatModel):
    def bind_tools(self, *args, **kwargs):
        return self


class Weight(BaseModel):
    grams: int


@tool(return_direct=True)
def direct(what: str) -> str:
    """Weigh."""
    return "812 g"


@tool
def usual(what: str) -> str:
    """Weigh."""
    return "812 g"


def last(name, tools, **options):
    arguments = {"grams": 812} if name == "Weight" else {"what": "loaf"}
    call = AIMessage(content="", tool_calls=[{"name": name, "args": arguments, "id": "c1"}])
    agent = create_agent(Model(messages=iter([call])), tools, checkpointer=InMemorySaver(), **options)
    config = {"configurable": {"thread_id": name}}
    try:
        agent.invoke({"messages": [("user", "How much does the loaf weigh?")]}, config)
        ended = "returned"
    except RuntimeError:  # the model has no second answer
        ended = "broke off"
    message = agent.get_state(config).values["messages"][-1].model_dump()
    members = sorted(name for name, value in message.items() if value)
    print(f"{name}, {ended}: {message['type']}, {message['content']}, {' '.join(members)}")


last("direct", [direct])
last("usual", [usual])
last("Weight", [], response_format=ToolStrategy(Weight))
PY
venv/bin/python run.py | tee output
diff - output <<'SEEN'
direct, returned: tool, 812 g, content id name status tool_call_id type
usual, broke off: tool, 812 g, content id name status tool_call_id type
Weight, returned: tool, Returning structured response: grams=812, content id name status tool_call_id type
SEEN
