"""Compiles knowledgepulse_bert's encoder into the wheel, where there is a C compiler.

Without one, or on another processor, the wheel has no encoder and the worker computes in float32.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "worker/knowledgepulse_bert"
INSTRUCTIONS = {
    "avx2": "-march=haswell",
    "avx512vnni": "-march=cascadelake",
}
"""The compiler's argument for each library. Both are compiled on every machine, so that wheels are equal."""

FLAGS = ["-std=c11", "-O3", "-w", "-shared", "-fPIC", "-s", "-Wl,--build-id=none"]


class EncoderBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds a library for each set of instructions, and the platform to the wheel's name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; hatchling calls this before it collects the wheel's files."""
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            return
        try:
            self._compile(shlex.split(os.environ.get("CC", "cc")))
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(
                f"The model will run in float32, since its encoder was not compiled: {error}"
            )
            return
        build_data["artifacts"] += [f"/{PACKAGE}/{name}.so" for name in INSTRUCTIONS]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compile(self, compiler: list[str]) -> None:
        folder = Path(self.root) / PACKAGE
        commands = []
        for name, march in INSTRUCTIONS.items():
            library = folder / f"{name}.so"
            # An editable installation would go on with that of earlier sources.
            library.unlink(missing_ok=True)
            commands.append([*compiler, *FLAGS, march, str(folder / "encoder.c"), "-o", str(library)])
        running = [subprocess.Popen(command) for command in commands]  # noqa: S603 - the builder's compiler
        for process, command in zip(running, commands, strict=True):
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, command)
