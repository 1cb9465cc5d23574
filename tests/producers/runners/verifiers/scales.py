"""A set of one task, and the harness that solves it; verifiers keep what its model says."""

import asyncio

import verifiers.v1 as vf
from bakery import OBJECTIVE, SCRIPT
from chat_loop import bake
from openai import OpenAI


class Weighing(vf.Task[vf.TaskData]):
    pass


def grader(name, value):
    async def graded(self, trace: vf.Trace) -> float:
        return value

    graded.__name__ = name
    return vf.reward(weight=1.0)(graded)


for name, value in SCRIPT["rewards"].items():
    setattr(Weighing, name, grader(name, value))


class Scales(vf.Taskset[Weighing, vf.TasksetConfig]):
    def load(self):
        return [Weighing(vf.TaskData(prompt=OBJECTIVE))]


class Baker(vf.Harness[vf.HarnessConfig]):
    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        await asyncio.to_thread(bake, OpenAI(base_url=endpoint, api_key=secret, max_retries=0))
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["Baker", "Scales"]
