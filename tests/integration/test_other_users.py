"""What another user of the machine sees of a running worker is what SECURITY.md says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import psutil
import pytest

from chaos.assembly import new_stream
from knowledgepulse_worker.tools.demo.processes import free_ports
from support.processes import tree
from support.streams import READY_LIMIT, Message

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can act as another user"),
]

NOBODY = 65534
COULD_NOT_CONNECT = 7
"""A status of curl."""
SECRET = "a-secret-of-the-environment"
REDACTION = {"function": "knowledgepulse_worker.redaction.sdk:clean"}


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


def shown_of(pid):
    """Return the ports on which a program's processes listen; check that another user sees nothing else.

    But the command lines.
    """
    processes = tree(pid)
    sockets = [each for process in processes for each in process.net_connections("all")]
    assert [each.laddr for each in sockets if each.family.name == "AF_UNIX" and each.laddr] == []
    for process in processes:
        of_process = f"/proc/{process.pid}"
        files = {name: as_nobody("cat", f"{of_process}/{name}") for name in ("environ", "cmdline", "maps")}
        files["fd"] = as_nobody("ls", f"{of_process}/fd")
        assert [name for name, (status, _) in files.items() if status == 0] == ["cmdline"]
        assert files["cmdline"][1]
        assert SECRET not in files["cmdline"][1]
    return [each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN]


async def test_another_user_sees_the_web_port_and_command_lines_without_secrets(make_stream, real_traces):
    stream = await make_stream(1, redaction=REDACTION, topics={"redacted": f"redacted-{os.urandom(4).hex()}"})
    environment = {"KP_KAFKA__SASL_PASSWORD": SECRET}
    async with stream.worker(environment=environment) as worker:
        await stream.outputs(worker, await stream.publish([Message(value) for value in real_traces[:3]]))
        assert len(tree(worker.process.pid)) >= 3  # the parent, the child and the redaction function's
        assert shown_of(worker.process.pid) == [worker.settings.web.port]


async def test_another_user_sees_the_web_port_of_an_assembler(broker, tmp_path):
    """As of `evaluations` and `contributions`, which are the same program around another task."""
    stream = await new_stream(broker.bootstrap_servers, tmp_path)
    settings = stream.configured(kafka={"session_timeout": 6.0})
    async with stream.worker(
        settings, command="assemble", environment={"KP_KAFKA__SASL_PASSWORD": SECRET}
    ) as assembler:
        async with asyncio.timeout(READY_LIMIT):
            while not await assembler.metrics():
                await asyncio.sleep(0.1)
        assert shown_of(assembler.process.pid) == [assembler.settings.web.port]


async def test_another_user_sees_of_the_page_for_labels_only_that_there_is_one(real_traces, tmp_path):
    (traces := tmp_path / "traces.jsonl").write_bytes(real_traces[0])
    command = ("policy", "label", str(traces), "--output", str(tmp_path / "labels"))
    command += ("--by", "ann", "--embedder", "none")
    port = free_ports(1)[0]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knowledgepulse_worker.cli.entry", *command, "--port", str(port)),
        env=os.environ | {"OPENAI_API_KEY": SECRET},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        address = (await process.stdout.readline()).decode().removeprefix("label at ").strip()
        answers = [as_nobody("curl", "-s", address.rstrip("/") + path) for path in ("/", "/api/trace")]
        refused = [
            as_nobody("curl", "-s", f"http://127.0.0.1:{port}{path}")
            for path in ("/", "/api/trace", "/api/label")
        ]
        ports = shown_of(process.pid)
        _, words = as_nobody("cat", f"/proc/{process.pid}/cmdline")
    finally:
        process.kill()
        await process.wait()

    assert "objective" in answers[1][1], "who has the address sees the traces"
    assert {text for _, text in refused} == {"404: Not Found"}
    assert ports == [port]
    assert address.split("/")[3] not in words


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
