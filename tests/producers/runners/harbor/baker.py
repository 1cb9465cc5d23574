"""An agent for Harbor that writes its trajectory with Harbor's types and the flags of its agent for Pi."""

import asyncio
import json

from bakery import SCRIPT
from chat_loop import bake
from harbor.agents.base import BaseAgent
from harbor.models.trajectories import Agent, Observation, ObservationResult, Step, ToolCall, Trajectory
from openai import OpenAI


class Baker(BaseAgent):
    @staticmethod
    def name():
        return "baker"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        steps = []
        for told in await asyncio.to_thread(bake, OpenAI(), SCRIPT["limit"]):
            number = len(steps) + 1
            if isinstance(told, dict) and told["role"] == "user":
                steps.append(Step(step_id=number, source="user", message=instruction))
            elif isinstance(told, dict):
                steps[-1].observation.results.append(result_of(told))
            else:
                steps.append(step_of(number, told))
        agent = Agent(name=self.name(), version=self.version())
        trajectory = Trajectory(session_id=environment.session_id, agent=agent, steps=steps)
        (self.logs_dir / "trajectory.json").write_text(json.dumps(trajectory.to_json_dict()))


def result_of(told):
    return ObservationResult(
        source_call_id=told["tool_call_id"],
        content=told["content"],
        extra={"is_error": told["content"].startswith("Error: ")},
    )


def step_of(number, choice):
    calls = [
        ToolCall(
            tool_call_id=call.id,
            function_name=call.function.name,
            arguments=json.loads(call.function.arguments),
        )
        for call in choice.message.tool_calls or ()
    ]
    return Step(
        step_id=number,
        source="agent",
        message=choice.message.content,
        tool_calls=calls or None,
        observation=Observation(results=[]) if calls else None,
        extra={"stop_reason": choice.finish_reason},
    )
