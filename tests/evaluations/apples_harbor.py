"""Tasks and an agent for Harbor that need neither a model nor a container.

``python apples_harbor.py FOLDER`` writes the tasks.
"""

import json
import sys
from pathlib import Path

from harbor.agents.base import BaseAgent


class Counter(BaseAgent):
    """Counts apples: it is right only where it looks twice, in every other box."""

    @staticmethod
    def name():
        return "counter"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        looks = 2 if int(instruction.split()[-1]) % 2 else 1
        steps = [{"step_id": 1, "source": "user", "message": instruction}]
        for number in range(looks):
            command = f"echo $((40 + {number + 1})) > answer.txt; cat answer.txt"
            done = await environment.exec(command)
            steps.append(
                {
                    "step_id": len(steps) + 1,
                    "source": "agent",
                    "message": f"I look {'again' if number else 'once'}.",
                    "tool_calls": [
                        {
                            "tool_call_id": f"c{number}",
                            "function_name": "bash",
                            "arguments": {"command": command},
                        }
                    ],
                    "observation": {"results": [{"source_call_id": f"c{number}", "content": done.stdout}]},
                }
            )
        steps.append({"step_id": len(steps) + 1, "source": "agent", "message": "I have counted the apples."})
        trajectory = {
            "schema_version": "ATIF-v1.8",
            "session_id": environment.session_id,
            "agent": {"name": self.name(), "version": self.version()},
            "steps": steps,
        }
        (self.logs_dir / "trajectory.json").write_text(json.dumps(trajectory, indent=2))


TEST = """#!/bin/bash
cd "$(dirname "$0")/.."
grep -q 42 app/answer.txt; echo $((1 - $?)) > logs/verifier/reward.txt
"""


def write_tasks(folder, count=12):
    """Write tasks, each of which asks for the apples in another box."""
    for number in range(count):
        task = folder / f"box-{number}"
        for name, text in {
            "instruction.md": f"How many apples are in box {number}",
            "task.toml": 'version = "1.0"\n',
            "environment/Dockerfile": "FROM scratch\n",
            "tests/test.sh": TEST,
        }.items():
            (task / name).parent.mkdir(parents=True, exist_ok=True)
            (task / name).write_text(text)


if __name__ == "__main__":
    write_tasks(Path(sys.argv[1]))
