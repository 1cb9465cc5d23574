"""Run a command with one broker for all of its processes: `python -m support.one_broker pytest …`.

Each process of pytest-xdist would start a broker of its own. Kafka's classes are archived once, beside its
jars: a broker that maps them starts in half the CPU time (Java's class data sharing, JEP 350).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.tools.demo.kafka_node import Unavailable
from support.brokers import configured_broker
from support.java_kafka import JavaKafka, running_broker

SHARED_BROKER = "TESTS_BROKER"
"""The environment variable with the address of the broker."""

JAVA_OPTIONS = "JDK_JAVA_OPTIONS"


def class_archive() -> Path:
    """Return the archive of the classes that a broker loads, for this Java; create it on first use.

    Raises:
        Unavailable: there is no Java, or no Maven to download Kafka's jars with.
    """
    kafka = JavaKafka.find(print)
    version = subprocess.run([kafka.java, "-version"], capture_output=True, check=True).stderr
    digest = hashlib.sha256(version).hexdigest()[:8]
    archive = kafka.jars.with_name(f"{kafka.jars.name}-java-{digest}.jsa")
    if not archive.exists():
        with TemporaryDirectory(dir=kafka.jars.parent) as folder:
            unfinished = Path(folder, archive.name)
            with configured_broker(Path(folder), {}, [f"-XX:ArchiveClassesAtExit={unfinished}"]):
                pass
            unfinished.replace(archive)
    return archive


def main() -> int:
    """Run the command of the arguments; return its exit status."""
    try:
        # Java says that it does not use the archive where a program has other classes.
        options = [
            os.environ.get(JAVA_OPTIONS, ""),
            f"-XX:SharedArchiveFile={class_archive()}",
            "-Xlog:cds*=error",
        ]
        os.environ[JAVA_OPTIONS] = " ".join(options)
    except Unavailable as why:
        print(f"no archive of Kafka's classes: {why.reason}")
    try:
        with running_broker(print) as broker:
            environment = os.environ | {SHARED_BROKER: broker.bootstrap_servers}
            return subprocess.run(sys.argv[1:], env=environment, check=False).returncode
    except NoBrokerError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
