"""What becomes of traces that are put into a delivery."""

from __future__ import annotations

from knowledgepulse_worker.tools.publish.delivery import Delivery


def test_what_comes_after_the_end_is_counted_or_spooled(tmp_path):
    """A span that ends while the process ends: its trace was neither published nor counted."""
    for spool, lost in ((None, 2), (tmp_path / "spool", 0)):
        delivery = Delivery(tmp_path / "traces.jsonl", "id", spool)
        delivery.put(lambda: [b'{"id": 1}'], 9)
        delivery.close()

        delivery.put(lambda: [b'{"id": 2}', b'{"id": 3}'], 18)

        assert delivery.lost == lost
        assert delivery.flush(0)
        delivery._thread.join(60)  # an agent's process ends here
        delivery._loop.close()
    assert (tmp_path / "traces.jsonl").read_text().count("\n") == 2
    assert b"".join(file.read_bytes() for file in (tmp_path / "spool").glob("*.jsonl")).count(b"\n") == 2
