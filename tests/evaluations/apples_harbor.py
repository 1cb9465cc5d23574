"""Tasks, an agent and an environment for Harbor that need neither a model nor a container.

``python apples_harbor.py FOLDER`` writes the tasks.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment, ExecResult


class LocalEnvironment(BaseEnvironment):
    """Runs commands in a temporary folder, which stands for the root of a container."""

    @staticmethod
    def type():
        return "local"

    def _validate_definition(self):
        pass

    async def start(self, force_build):
        self.root = Path(tempfile.mkdtemp())
        for folder in ("logs/agent", "logs/verifier", "logs/artifacts", "tests", "app"):
            (self.root / folder).mkdir(parents=True)

    async def stop(self, delete):
        shutil.rmtree(self.root)

    def _here(self, path):
        return self.root / str(path).lstrip("/")

    async def upload_file(self, source_path, target_path):
        self._here(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._here(target_path))

    async def upload_dir(self, source_dir, target_dir):
        shutil.copytree(source_dir, self._here(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path, target_path):
        shutil.copy(self._here(source_path), target_path)

    async def download_dir(self, source_dir, target_dir):
        shutil.copytree(self._here(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        for folder in ("logs", "tests", "app"):
            command = command.replace(f"/{folder}", f"{self.root}/{folder}")
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=self.root / "app",
            env={**os.environ, **(env or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        return ExecResult(stdout=stdout.decode(), stderr=stderr.decode(), return_code=process.returncode)


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
