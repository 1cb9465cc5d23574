"""A worker computes on as many cores as it may use."""

import os

import pytest

from knowledgepulse_worker.embedding.cores import usable_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "1600000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ],
    ids=[
        "no cgroup",
        "no limit",
        "2",
        "1.5",
        "0.01",
        "more than there are",
        "version 1",
        "version 1, no limit",
    ],
)
def test_the_cores_are_those_of_the_affinity_within_the_limit_of_the_container(tmp_path, files, cores):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)

    assert usable_cores(tmp_path) == cores
