"""A real S3 server: S3Proxy serves a folder; Maven downloads its jars once."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from knowledgepulse_worker.tools.demo.processes import free_ports
from support.tools import tool

_POM = Path(__file__).parents[1] / "data" / "s3proxy-pom.xml"
_LIMIT = 120


def _jars() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "knowledgepulse-worker")
    jars = cache / "s3proxy-2.9.0"
    if not jars.is_dir():
        unfinished = cache / f"{jars.name}.{os.getpid()}"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={unfinished}"]
        subprocess.run([tool("mvn"), "-B", "-q", "-f", _POM, *goal], check=True, timeout=10 * _LIMIT)
        try:
            unfinished.rename(jars)
        except OSError:  # another process was faster
            assert jars.is_dir()
    return jars


@contextmanager
def s3_server(folder: Path, key: str, secret: str) -> Iterator[str]:
    """Serve a folder whose subfolders are buckets; yield the query of the URLs."""
    (port,) = free_ports(1)
    settings = {
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.identity": key,
        "s3proxy.credential": secret,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(folder),
    }
    properties = folder.with_suffix(".properties")
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [tool("java"), "-Xmx256m", "-cp", f"{_jars()}/*", "org.gaul.s3proxy.Main"]
    with folder.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen([*command, "--properties", properties], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _LIMIT
        while not _listens(port):
            assert process.poll() is None, log_of(folder)
            assert time.monotonic() < deadline, log_of(folder)
            time.sleep(0.05)
        yield f"endpoint_override={quote(settings['s3proxy.endpoint'], safe='')}&region=us-east-1"
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def log_of(folder: Path) -> str:
    """Return the server's log."""
    return folder.with_suffix(".log").read_text()
