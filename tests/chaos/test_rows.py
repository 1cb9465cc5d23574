"""The short forms of rows that no other test covers: every outcome is committed once, whatever the fault.

README.md names what covers the other rows; `make chaos ROWS=--short` plays all short forms.
"""

from __future__ import annotations

import pytest

from chaos.brokers import running_brokers
from chaos.play import judge, play
from chaos.rows import ROWS


@pytest.fixture(scope="module")
def brokers():
    with running_brokers(1) as brokers:
        yield brokers


@pytest.mark.integration
@pytest.mark.timeout(900)  # every wait in a row has its own limit
@pytest.mark.parametrize("name", ["kill", "network"])
async def test_every_outcome_is_committed_once(name, brokers, tmp_path):
    judge(ROWS[name], await play(ROWS[name], ROWS[name].short, brokers, tmp_path, print))
