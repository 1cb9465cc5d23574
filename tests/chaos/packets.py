"""Lose packets on loopback, so that TCP sends them again; takes root and iptables."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_RANDOM = ("-m", "statistic", "--mode", "random", "--probability")


@contextmanager
def lost_packets(share: float, addresses: list[str]) -> Iterator[None]:
    """Drop a share of the packets that arrive from and at addresses, ``host:port``, until exit."""
    with ExitStack() as stack:
        for address in addresses:
            for side in ("--dport", "--sport"):
                port = address.rsplit(":", 1)[1]
                rule = ["INPUT", "-p", "tcp", side, port, *_RANDOM, str(share), "-j", "DROP"]
                subprocess.run(["iptables-legacy", "-I", *rule], check=True)
                stack.callback(subprocess.run, ["iptables-legacy", "-D", *rule], check=True)
        yield
