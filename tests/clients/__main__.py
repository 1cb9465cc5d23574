"""Runs Kafka clients on a real broker, and keeps what they do: `make check NAME=clients`."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from clients.check import check_publishes, check_reads
from clients.client import BOUNDED, ENVIRONMENTS, PUBLISH, READ, Client, clients
from clients.results import keep
from support.java_kafka import VERSION, running_broker


def main() -> None:
    # Runners end with it, also if a shell lets programs in the background ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    chosen = _arguments().clients
    with running_broker(print) as broker:
        for client in clients():
            if client.tasks and (not chosen or any(map(client.name.startswith, chosen))):
                _check(client, broker.bootstrap_servers)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", help="names, or how they begin; all by default")
    return parser.parse_args()


def _check(client: Client, bootstrap: str) -> None:
    if not client.install():
        print(f"{client.title}: could not be installed", flush=True)
        return
    for task, check in ((READ, check_reads), (PUBLISH, check_publishes)):
        if task in client.tasks or (task == READ and BOUNDED in client.tasks):
            for mode in client.modes(task):
                result: dict[str, Any] = asyncio.run(check(client, mode, bootstrap, _output(client, mode)))
                keep(client, VERSION, task, mode, result)
                print(f"{client.title} {client.version}: {task}, {mode}: {json.dumps(result)}", flush=True)


def _output(client: Client, mode: str) -> Path:
    """Return the folder for what a client prints and writes."""
    output = ENVIRONMENTS / "output" / client.name / mode
    output.mkdir(parents=True, exist_ok=True)
    return output


main()
