"""The tables of Kafka clients: what they read of transactions, and where they put keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clients.check import KEYS
from clients.client import BOUNDED, DEFAULT, PUBLISH, READ, SET, Client, clients
from clients.results import kept
from clients.topic import MARKERS, RECORDS
from generator import markdown

_Result = dict[str, Any]


def reads() -> str:
    """Return a row for each client: what it delivers, whether a bounded read ends, what lag remains."""
    delivered = ("delivers by default", "with the setting", "setting")
    return _table(
        ("client", *delivered, "a bounded read ends", "lag when all is read"), {READ, BOUNDED}, _reads
    )


def keys() -> str:
    """Return a row for each client: how many keys it puts where Java's client does."""
    head = ("client", "in Java's partition by default", "with the setting", "setting")
    return _table(head, {PUBLISH}, _keys)


def _table(head: tuple[str, ...], tasks: set[str], row: Callable[[Client], tuple[str, ...]]) -> str:
    """Return a table of the clients that do one of the tasks, and of those that are not run."""
    chosen = [client for client in clients() if client.not_run or tasks & set(client.tasks)]
    chosen.sort(key=lambda client: client.title.lower().strip("@`"))
    brokers = {kept(client)["broker"] for client in chosen if not client.not_run}
    rows = (
        _line((client.title, f"not run: {client.not_run}", *[""] * (len(head) - 2)))
        if client.not_run
        else _line((f"{client.title} {client.version}", *row(client)))
        for client in chosen
    )
    return f"On Apache Kafka {', '.join(sorted(brokers))}:\n\n{markdown.table(_line(head), rows)}"


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _reads(client: Client) -> tuple[str, ...]:
    found = kept(client)[READ]
    best = found.get(SET, found[DEFAULT])
    bounded = best["bounded"]["ends"] if "bounded" in best else ""
    return *_modes(found, _delivered), client.isolation, bounded, _lag(best)


def _modes(found: _Result, words: Callable[[_Result], str]) -> tuple[str, str]:
    return words(found[DEFAULT]), words(found[SET]) if SET in found else ""


def _delivered(result: _Result) -> str:
    delivered = result["delivered"] if "delivered" in result else result["bounded"]["delivered"]
    kinds = [kind for kind in (*RECORDS, MARKERS) if kind in delivered]
    return ", ".join(_number(kind, delivered[kind]) for kind in kinds)


def _number(kind: str, number: int) -> str:
    whole = RECORDS.get(kind, number)
    return kind if number == whole else f"{kind} ({number} of {whole})"


def _lag(result: _Result) -> str:
    if "delivered" not in result:
        return ""
    lag = result["lag"]
    return "no position" if lag is None else "stays" if lag else "0"


def _keys(client: Client) -> tuple[str, ...]:
    return *_modes(kept(client)[PUBLISH], _agreement), client.partitioner


def _agreement(result: dict[str, int]) -> str:
    if set(result.values()) == {len(KEYS)}:
        return "all"
    return ", ".join(f"{keys} on {partitions}" for partitions, keys in result.items() if partitions != "1")
