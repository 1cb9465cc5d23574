"""The command `kp-worker policy label`, without its page."""

import pytest

from knowledgepulse_curator.labelling import label_command
from knowledgepulse_worker.tools.demo.processes import free_ports


@pytest.fixture
def served(monkeypatch):
    """Serve no page; return the addresses that were served."""
    addresses = []

    async def serve(serving, _stop):
        async with serving as address:
            addresses.append(address)

    monkeypatch.setattr(label_command, "_serve", serve)
    return addresses


def test_raw_traces_are_labelled_without_a_model_unless_their_scores_are_promised(
    kp_worker, served, real_traces, tmp_path
):
    """A model took seconds and half a gigabyte, and the page shows a random sample whatever the scores."""
    traces, settings = tmp_path / "traces.jsonl", tmp_path / "worker.toml"
    traces.write_bytes(b"\n".join(real_traces[:3]))
    settings.write_text(f'[embedding]\nmodel = "{tmp_path}/no-model"\n')
    label = ("policy", "label", traces, "--config", settings, "--output", tmp_path / "labels", "--by", "ann")
    label += ("--port", free_ports(1)[0])

    labelled = kp_worker(*label)
    promised = kp_worker(*label, "--promise", "0.8")

    assert (labelled.exit_code, len(served)) == (0, 1), labelled.stderr
    assert promised.exit_code != 0
    assert "embedding.model" in promised.stderr
