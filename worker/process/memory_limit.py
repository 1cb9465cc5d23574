"""The memory limit of a container, from the kernel's control groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

_NO_LIMIT = 2**60
"""Version 1 has a number near 2**63 for no limit, version 2 ``max``."""


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the lowest limit in bytes of this process's control group and its ancestors, if any.

    Args:
        root: the root of the file system.
    """
    limits = []
    for file in _limit_files(root):
        with suppress(OSError, ValueError):  # missing, or `max`
            limits.append(int(file.read_text()))
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)


def _limit_files(root: Path) -> Iterator[Path]:
    mount = root / "sys/fs/cgroup"
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                folder, name = mount, "memory.max"
            elif "memory" in controllers.split(","):
                folder, name = mount / "memory", "memory.limit_in_bytes"
            else:
                continue
            # A container may see only its own group, mounted as the root.
            for path in (PurePosixPath(group), *PurePosixPath(group).parents):
                yield folder / path.relative_to("/") / name
