"""The number of cores that this process may use."""

import os
from math import ceil
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Return the number of cores within the process's affinity and its container's CPU limit, rounded up.

    Args:
        cgroup: the mounted control group, of version 2 (``cpu.max``) or 1 (``cpu/cpu.cfs_quota_us``).

    Sources: Linux's `cgroup-v2.rst` and `sched-bwc.rst`. A quota of ``max`` or -1 is none.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _quota_and_period(cgroup)
        return min(cores, max(1, ceil(int(quota) / int(period)))) if int(quota) > 0 else cores
    except (OSError, ValueError):  # neither version is mounted, or there is no limit
        return cores


def _quota_and_period(cgroup: Path) -> list[str]:
    """Return the microseconds of CPU time in each period, and the period's length in microseconds."""
    if (limit := cgroup / "cpu.max").exists():
        return limit.read_text().split()
    return [(cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")]
