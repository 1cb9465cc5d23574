"""The short form of the row that needs a cluster: a coordinator dies while workers have transactions open."""

from __future__ import annotations

import pytest

from chaos.brokers import running_brokers
from chaos.play import judge, play
from chaos.rows import ROWS

ROW = ROWS["coordinators"]


@pytest.fixture
def cluster():
    with running_brokers(ROW.nodes) as brokers:
        yield brokers


@pytest.mark.integration
@pytest.mark.timeout(900)  # every wait in a row has its own limit
async def test_every_outcome_is_committed_once_on_a_cluster(cluster, tmp_path):
    judge(ROW, await play(ROW, ROW.short, cluster, tmp_path, print))
