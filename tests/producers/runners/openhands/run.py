"""An agent with a terminal, whose conversation is kept as a file an event."""

import os
import sys
import uuid

from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.terminal import TerminalTool

output = os.environ["PRODUCER_OUTPUT"]
agent = Agent(
    llm=LLM(model="openai/scripted", api_key="unused", base_url=os.environ["OPENAI_BASE_URL"], num_retries=0),
    tools=[Tool(name=TerminalTool.name)],
)


def run(request: str) -> None:
    conversation = Conversation(
        agent=agent,
        workspace=".",
        persistence_dir=f"{output}/conversation",
        conversation_id=uuid.UUID(int=1),
        max_iteration_per_run=int(os.environ["PRODUCER_LIMIT"] or 100),
    )
    conversation.send_message(request)
    conversation.run()
    conversation.close()


resumed = sys.argv[1:]
run(resumed[0] if resumed else os.environ["PRODUCER_OBJECTIVE"])
if os.environ["PRODUCER_RESUMED"] and not resumed:
    os.execv(sys.executable, [sys.executable, __file__, os.environ["PRODUCER_RESUMED"]])
