"""The memory limit, in both versions of control groups."""

from __future__ import annotations

import pytest

from worker.process.memory_limit import memory_limit

UNLIMITED_V1 = str(2**63 - 4096)


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/", {"memory.max": "2147483648"}, 2**31),
        ("0::/", {"memory.max": "max"}, None),
        ("0::/pod/worker", {"pod/memory.max": "1000", "pod/worker/memory.max": "max"}, 1000),
        ("0::/not/visible", {"memory.max": "1000"}, 1000),
        ("5:cpu,cpuacct:/\n4:memory:/docker/x", {"memory/memory.limit_in_bytes": "1000"}, 1000),
        ("4:memory:/", {"memory/memory.limit_in_bytes": UNLIMITED_V1}, None),
        ("0::/", {}, None),
    ],
)
def test_the_limit_is_the_lowest_of_the_group_and_its_ancestors(tmp_path, groups, files, limit):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{groups}\n")
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    assert memory_limit(tmp_path) == limit


def test_a_system_without_control_groups_has_no_limit(tmp_path):
    assert memory_limit(tmp_path) is None
