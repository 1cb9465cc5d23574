"""What another user of the machine sees of a running worker is what SECURITY.md says."""

from __future__ import annotations

import os
import subprocess

import psutil
import pytest

from support.processes import tree
from support.streams import Message

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can act as another user"),
]

NOBODY = 65534
COULD_NOT_CONNECT = 7
"""A status of curl."""
SECRET = "a-secret-of-the-environment"


def as_nobody(*command):
    """Return status and output of a command that another user runs."""
    done = subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False
    )
    return done.returncode, done.stdout.decode(errors="replace")


def from_elsewhere(script):
    """Return the status of a script in a network namespace of its own."""
    return subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, check=False
    ).returncode


async def test_another_user_sees_the_web_port_and_command_lines_without_secrets(make_stream, real_traces):
    stream = await make_stream(1)
    environment = {"KP_KAFKA__SASL_PASSWORD": SECRET}
    async with stream.worker(environment=environment) as worker:
        await stream.outputs(worker, await stream.publish([Message(value) for value in real_traces[:3]]))
        processes = tree(worker.process.pid)
        sockets = [each for process in processes for each in process.net_connections("all")]
        seen = {
            process.pid: {
                name: as_nobody("cat", f"/proc/{process.pid}/{name}")
                for name in ("environ", "cmdline", "maps")
            }
            | {"fd": as_nobody("ls", f"/proc/{process.pid}/fd")}
            for process in processes
        }

    assert len(processes) >= 2
    listening = {each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN}
    assert listening == {worker.settings.web.port}
    assert [each.laddr for each in sockets if each.family.name == "AF_UNIX" and each.laddr] == []
    for files in seen.values():
        assert [name for name, (status, _) in files.items() if status == 0] == ["cmdline"]
        assert files["cmdline"][1]
        assert SECRET not in files["cmdline"][1]


async def test_content_that_is_hidden_stays_hidden_from_another_user(make_stream, real_traces):
    stream = await make_stream(1, web={"show_content": False})
    async with stream.worker() as worker:
        await stream.outputs(worker, await stream.publish([Message(value) for value in real_traces[:3]]))
        status, data = as_nobody(
            "curl", "-sf", "--retry", "9", "-H", "Kp-Content: shown", f"{worker.url}/api/status"
        )
        _, metrics = as_nobody("curl", "-sf", f"{worker.url}/metrics")
        apart = from_elsewhere(f"ip link set lo up; curl -s {worker.url}/api/status")

    assert status == 0
    assert apart == COULD_NOT_CONNECT, "a network namespace of its own hides the port"
    assert "recent" in data or "verdict" in data
    assert "kp:trace:" not in data
    assert "kp:trace:" not in metrics
