"""The short forms of the rows show that every outcome is committed exactly once, whatever the fault.

Rows with a mechanism switched off must fail, which shows that rows can fail.
"""

from __future__ import annotations

import pytest

from chaos.assembly import assemble
from chaos.brokers import running_brokers
from chaos.dataset import export
from chaos.overload import gap
from chaos.play import judge, play
from chaos.rows import ROWS


@pytest.fixture(scope="module")
def brokers():
    """Start one broker for all rows that need only one; rows that kill it restart it."""
    with running_brokers(1) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def cluster():
    """Start a cluster for all rows that need one; they restart the nodes that they kill."""
    with running_brokers(3) as brokers:
        yield brokers


@pytest.mark.integration
@pytest.mark.timeout(900)  # every wait in a row has its own limit
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.nodes == 1 and row.is_tested])
async def test_every_outcome_is_committed_once(name, brokers, tmp_path):
    row = ROWS[name]
    judge(row, await play(row, row.short, brokers, tmp_path, print))


@pytest.mark.integration
@pytest.mark.timeout(900)  # every wait in a row has its own limit
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.nodes == 3])
async def test_every_outcome_is_committed_once_on_a_cluster(name, cluster, tmp_path):
    row = ROWS[name]
    judge(row, await play(row, row.short, cluster, tmp_path, print))


@pytest.mark.integration
async def test_a_worker_crosses_a_wide_gap_in_constant_memory(brokers, tmp_path):
    """The gap consists of the offsets of an aborted transaction."""
    outcome = await gap(brokers.direct, tmp_path, True, print)
    assert outcome.wrong == []


@pytest.mark.integration
@pytest.mark.timeout(600)
async def test_killed_assemblers_lose_nothing_and_publish_nothing_twice(brokers, tmp_path):
    outcome = await assemble(brokers.direct, tmp_path, True, print)
    assert outcome.wrong == []
    assert all(outcome.hits), outcome


@pytest.mark.integration
@pytest.mark.timeout(600)
async def test_killed_workers_and_exports_make_the_same_dataset(brokers, tmp_path):
    outcome = await export(brokers.direct, tmp_path, True, print)
    assert outcome.wrong == []
    assert all(outcome.hits), outcome
