"""The short forms of the rows that no other test covers: every outcome is committed once, whatever the fault.

README.md names what covers the other rows; `make chaos ROWS=--short` plays all short forms.
"""

from __future__ import annotations

import pytest

from chaos.brokers import running_brokers
from chaos.play import judge, play
from chaos.rows import ROWS


@pytest.mark.integration
@pytest.mark.timeout(900)  # every wait in a row has its own limit
@pytest.mark.parametrize("name", ["kill", "network", "coordinators"])
async def test_every_outcome_is_committed_once(name, tmp_path):
    row = ROWS[name]
    with running_brokers(row.nodes) as brokers:
        judge(row, await play(row, row.short, brokers, tmp_path, print))
