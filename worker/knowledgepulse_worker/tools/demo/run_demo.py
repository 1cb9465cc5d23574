"""The demo: 154 real traces through a real broker and a real worker, and the results."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from knowledgepulse_kafka import CLIENT
from knowledgepulse_kafka.topic_reader import TopicReader
from knowledgepulse_worker.errors import WorkerError
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.policy import DEFAULT_DOMAIN, ROUTES, Policy
from knowledgepulse_worker.settings import (
    ENV_PREFIX,
    NESTED,
    KafkaSettings,
    Settings,
    load_settings,
    override,
    render,
)
from knowledgepulse_worker.tools.common.scored_records import read_counted
from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.demo.brokers import Broker, running_broker
from knowledgepulse_worker.tools.demo.demo_report import Results, line_of, summarise, what_next
from knowledgepulse_worker.tools.publish.trace_publisher import TracePublisher

PARTITIONS = 4
SHARE = 0.2
"""The share that passes unless the user has set what does. No trace reaches the default threshold."""
AT_A_TIME = 2
"""Traces that are published before their scores are awaited. A flood would show the time in a queue."""
LARGE_PART = 1 / 3
"""The part of the budget from which on a text takes long enough that traces would wait for each other."""

_START_LIMIT = 180.0
_STALL_LIMIT = 60.0


def show(console: Console, backend: str | None = None, *, stay: bool) -> None:
    """Run the demo; ``stay`` keeps the worker running afterwards, until Ctrl-C."""
    logging.getLogger(CLIENT).setLevel(logging.CRITICAL)  # it would tell of each attempt
    console.rule("[bold]knowledgepulse-worker demo")
    with running_broker(lambda line: console.print(f"  {line}")) as broker:
        console.print(f"[bold]broker[/]  {broker.description}")
        asyncio.run(_while_running(broker, _demo(demo_settings(broker, backend), broker, console, stay=stay)))
    console.print("\nStopped. No processes or topics are left behind.")


async def _while_running(broker: Broker, work: Coroutine[Any, Any, None]) -> None:
    """Work until the broker ends; the clients would wait for it, and say so again and again.

    Raises:
        WorkerError: the broker has ended.
    """
    demo, end = asyncio.create_task(work), asyncio.create_task(_until_ended(broker))
    await asyncio.wait((demo, end), return_when=asyncio.FIRST_COMPLETED)
    has_ended = end.done()
    (demo if has_ended else end).cancel()
    await asyncio.wait((demo, end))
    if has_ended:
        raise WorkerError(f"the broker has ended, and the demo with it: {broker.description}")
    demo.result()


async def _until_ended(broker: Broker) -> None:
    while await asyncio.to_thread(broker.is_running):  # noqa: ASYNC110 - a container tells of no end
        await asyncio.sleep(1)


async def _demo(settings: Settings, broker: Broker, console: Console, *, stay: bool) -> None:
    traces = files("knowledgepulse_worker.tools.demo").joinpath("real_traces.jsonl").read_bytes().splitlines()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_topics(settings, broker))
        worker = stack.enter_context(ExitStack())
        child = _Worker(settings, worker)
        with console.status("[bold]worker[/]  starting: it loads the model and joins the group"):
            await child.ready()
        console.print(f"[bold]worker[/]  {settings.embedding.backend}, status page at {child.status_page}")
        [(rule, value)] = settings.policy.profile(DEFAULT_DOMAIN).rule.items()
        console.print(f"[bold]policy[/]  {rule} {value:g}; the default is threshold {Policy().threshold:g}")
        at_a_time = await _at_a_time(child, settings.limits.budget)
        results = await _watch(traces, at_a_time, settings, child, console)
        summarise(console, results, await child.status(), settings)
        what_next(console, child.status_page, stay=stay)
        if stay:
            console.print("\nThe worker keeps running; press [bold]Ctrl-C[/] to stop it.")
            with suppress(
                asyncio.CancelledError
            ):  # the normal way; the runner still raises KeyboardInterrupt
                await asyncio.Event().wait()


def demo_settings(broker: Broker, backend: str | None = None) -> Settings:
    """Return the user's settings with the demo's topics, group and port, and its share if no rule is set.

    The user's connection applies only to a configured broker. A broker that the demo starts takes the
    defaults.
    """
    name = f"kp-demo-{uuid4().hex[:6]}"
    settings = load_settings()
    topics = {
        topic: f"{name}-{default}" for topic, default in settings.topics.model_dump(exclude_none=True).items()
    }
    if not {"threshold", "share"} & settings.policy.model_fields_set:
        settings = override(settings, "policy", {"share": SHARE})
    if backend is not None:
        settings = override(settings, "embedding", {"backend": backend})
    if broker.kind != "configured":
        settings = settings.model_copy(update={"kafka": KafkaSettings()})
    settings = override(settings, "kafka", {"bootstrap_servers": broker.bootstrap_servers, "group": name})
    settings = override(settings, "topics", topics)
    settings = override(settings, "log", {"format": "human"})  # shown to the user if the worker exits
    return override(settings, "web", {"port": processes.free_ports(1)[0]})


def worker_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a worker whose settings are in a file.

    The environment omits the settings of this process, which would override the file. It includes the
    secrets, which :func:`~knowledgepulse_worker.settings.render` does not write to the file.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(ENV_PREFIX)}
    secrets = {name: getattr(settings.kafka, name) for name in KafkaSettings.secrets()}
    return inherited | {
        f"{ENV_PREFIX}KAFKA{NESTED}{name.upper()}": secret.get_secret_value()
        for name, secret in secrets.items()
        if secret is not None
    }


@asynccontextmanager
async def _topics(settings: Settings, broker: Broker) -> AsyncIterator[None]:
    """Create the demo's topics, and delete them afterwards if the broker still runs."""
    # A broker started here is a single node; for others, use their default replication factor.
    replication_factor = -1 if broker.kind == "configured" else 1
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        created = await admin.create_missing(PARTITIONS, replication_factor)
    try:
        yield
    finally:
        if broker.is_running():
            async with TopicAdmin(settings.kafka, settings.topics) as admin:
                await admin.delete(list(created))


class _Worker:
    """A `kp-worker run` process, which is stopped with the stack."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self.status_page = f"http://{settings.web.host}:{settings.web.port}/"
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="kp-demo-")))
        config = folder / "worker.toml"
        config.write_text(render(settings), encoding="utf-8")
        self._log = folder / "worker.log"
        command = [sys.executable, "-m", "knowledgepulse_worker.cli.entry", "run", "--config", str(config)]
        self._process: subprocess.Popen[bytes] = processes.start(
            stack, command, self._log, worker_environment(settings)
        )

    async def ready(self) -> None:
        """Wait until all partitions are owned."""
        deadline = time.monotonic() + _START_LIMIT
        while (await self.status())["partitions"]["owned_count"] < PARTITIONS:
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"the worker was not ready within {_START_LIMIT:.0f} s:\n{self._last_lines()}"
                )
            await asyncio.sleep(0.2)

    async def status(self) -> dict[str, Any]:
        """Return the worker's status; before it is served, a status without partitions."""
        self.check()
        try:
            return await asyncio.to_thread(_fetch, f"{self.status_page}api/status")
        except urllib.error.URLError:
            return {"partitions": {"owned_count": 0}}

    def check(self) -> None:
        """Raise an error if the worker has exited."""
        if self._process.poll() is not None:
            raise WorkerError(
                f"the worker exited with status {self._process.returncode}:\n{self._last_lines()}"
            )

    def _last_lines(self) -> str:
        return "\n".join(f"  | {line}" for line in processes.last_lines(self._log.read_bytes()))


def _fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - our own worker's
        return json.load(response)


async def _at_a_time(worker: _Worker, budget: float) -> int:
    """Return how many traces to have in flight on this processor."""
    seconds = (await worker.status())["worker"]["embedding_pass_seconds"]
    return 1 if seconds is not None and seconds > LARGE_PART * budget else AT_A_TIME


async def _watch(
    traces: list[bytes], at_a_time: int, settings: Settings, worker: _Worker, console: Console
) -> Results:
    """Publish the traces, and follow the outputs until all have arrived."""
    topics = settings.topics
    routes = {topics.of(route): route for route in ROUTES.values()}
    outcomes: dict[str, str] = {topic: route.name for topic, route in routes.items()}
    outcomes[topics.dead_letter] = "dead letter"
    results = Results(Counter(dict.fromkeys(outcomes.values(), 0)))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(
            TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes)
        )
        publisher = await stack.enter_async_context(TracePublisher(settings))
        console.print(f"[bold]traces[/]  {len(traces)}, {at_a_time} at a time; these pass:")
        progress = stack.enter_context(Progress(*columns, console=console))
        scoring = progress.add_task("[bold]scoring[/]", total=len(traces))
        started = last = time.monotonic()
        arrivals = reader.follow(dict.fromkeys(outcomes, PARTITIONS))
        while (done := results.outcomes.total()) < len(traces):
            worker.check()
            for trace in traces[publisher.published.records : done + at_a_time]:
                await publisher.publish(trace)
            for record in await anext(arrivals):
                last = time.monotonic()
                results.outcomes[outcomes[record.topic]] += 1
                if scored := read_counted(record):
                    results.scored.append(scored)
                    if routes[record.topic].kept:
                        progress.console.print(line_of(scored))
            shown = ", ".join(f"{count} {outcome}" for outcome, count in results.outcomes.items())
            progress.update(
                scoring, completed=results.outcomes.total(), description=f"[bold]scoring[/]  {shown}"
            )
            if time.monotonic() - last > _STALL_LIMIT:
                raise WorkerError(f"no outputs for {_STALL_LIMIT:.0f} s; {shown or 'none'} until then")
        results.seconds = time.monotonic() - started
    return results
