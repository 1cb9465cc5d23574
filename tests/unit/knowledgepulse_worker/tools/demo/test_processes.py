"""Ports for the processes that the demo and the tests start."""

from __future__ import annotations

import errno
import socket

import pytest

from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.demo.processes import LOOPBACK, free_ports


def test_no_outgoing_connection_can_take_a_free_port_before_it_is_used():
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_connection(server.getsockname()) as used,
    ):
        lowest = 32_768
        assert used.getsockname()[1] >= lowest

    assert max(free_ports(20)) < lowest


def test_a_port_in_use_is_not_free_and_none_is_given_twice(monkeypatch):
    with socket.create_server((LOOPBACK, free_ports(1)[0])) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(processes, "_SERVER_PORTS", range(taken, taken + 10))

        assert len(set(free_ports(3)) - {taken}) == 3


def test_a_machine_that_opens_no_server_is_not_asked_for_ever(monkeypatch):
    def create_server(_address):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(processes.socket, "create_server", create_server)

    with pytest.raises(OSError, match="Too many open files"):
        free_ports(1)
