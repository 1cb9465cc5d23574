"""An environment for Harbor that needs no container."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

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
