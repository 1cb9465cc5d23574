"""Compiles what is written in C into the wheel, where there is a C compiler.

Without one, or on another processor, the model runs in float32, and Python does the rest, in more time.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from hashlib import sha256
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ENCODER, WORDS = "worker/knowledgepulse_bert/encoder.c", "worker/knowledgepulse_worker/embedding/words.c"
NEAREST = "worker/knowledgepulse_worker/scoring/nearest.c"
CHECKSUM, SCAN = "worker/knowledgepulse_kafka/crc32c.c", "worker/knowledgepulse_worker/records/scan.c"
LIBRARIES = {
    "worker/knowledgepulse_bert/avx2.so": (ENCODER, "-march=haswell"),
    "worker/knowledgepulse_bert/avx512vnni.so": (ENCODER, "-march=cascadelake"),
    "worker/knowledgepulse_kafka/crc32c.so": (CHECKSUM, "-march=nehalem"),
    "worker/knowledgepulse_worker/embedding/words.so": (WORDS, "-march=k8"),
    "worker/knowledgepulse_worker/records/scan.so": (SCAN, "-march=k8"),
    "worker/knowledgepulse_worker/scoring/nearest.so": (NEAREST, "-march=k8"),
    "worker/knowledgepulse_worker/scoring/nearest_avx2.so": (NEAREST, "-march=haswell"),
    "worker/knowledgepulse_worker/scoring/nearest_avx512vnni.so": (NEAREST, "-march=cascadelake"),
}
"""The source and the instructions of each library. All are compiled on every machine, so wheels are equal.

k8 is what every processor has: GCC and Clang also call it x86-64, which Zig does not know.
"""

FLAGS = ["-std=c11", "-O3", "-w", "-shared", "-fPIC", "-s"]


def build_id(source: Path) -> str:
    """Return the build ID of what is compiled from a source: its SHA-256, so that a stale library shows."""
    return sha256(source.read_bytes()).hexdigest()


class LibrariesBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the libraries, and the platform to the wheel's name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; hatchling calls this before it collects the wheel's files."""
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            return
        try:
            self._compile(shlex.split(os.environ.get("CC", "cc")))
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"The model will run in float32, and traces take longer: {error}")
            return
        build_data["artifacts"] += [f"/{name}" for name in LIBRARIES]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compile(self, compiler: list[str]) -> None:
        commands = []
        for name, (source, march) in LIBRARIES.items():
            library, code = Path(self.root, name), Path(self.root, source)
            # An editable installation would go on with that of earlier sources.
            library.unlink(missing_ok=True)
            identity = f"-Wl,--build-id=0x{build_id(code)}"
            commands.append([*compiler, *FLAGS, identity, march, str(code), "-lm", "-o", str(library)])
        running = [subprocess.Popen(command) for command in commands]  # noqa: S603 - the builder's compiler
        for process, command in zip(running, commands, strict=True):
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, command)
