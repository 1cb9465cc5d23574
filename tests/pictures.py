"""Take the pictures of the documents while traces flow: `make check NAME=pictures`, on a quiet machine.

Each shows what the commands of the README show. On a busy machine, a picture would say that a promise is
broken which holds: such a machine is refused, and so is a worker with a score over the budget.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from io import StringIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from playwright.async_api import Browser, async_playwright
from rich.console import Console

from knowledgepulse_worker import TracePublisher, load_settings, score_traces
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.score.score_report import report_of
from support.one_broker import SHARED_BROKER
from support.tools import tool

IMAGES = Path(__file__).parents[1] / "docs/images"
MAX_USED = 15.0
"""Percent of the processor's time that others may use; a load average would count the broker's start."""
WINDOWS, WINDOW = 12, 5.0
"""How often this is measured until it is quiet, each time for so many seconds."""
PACE, TRICKLE = 0.3, 1.5
"""Seconds between two traces: less than two cores can take, and while the browser takes some of them."""
YIELDING = 19
"""The niceness of the browser, which would otherwise take the processor from the worker that it shows."""
VIEWS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 860}},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
}
"""The windows of the browser, by the end of a picture's name."""
SETTINGS = """\
[kafka]
bootstrap_servers = "{servers}"
[policy]
share = 0.2
[web]
port = {port}
"""
TABLE = """<!doctype html><style>body {{ margin: 0; background: #171c22; }}
pre {{ margin: 0; padding: 16px 20px; color: #e7ebef; font: 13px/1.4 "DejaVu Sans Mono", monospace; }}</style>
<pre>$ kp-worker score traces.jsonl --embedder lexical\n{code}</pre>"""
TABLE_PARTS = 8
"""Parts of the report that the picture of the table has: the table, and what passes."""
PUBLISHED_BEFORE = 75
"""Traces that are scored before the pictures are taken, so that the page has something to show."""
STRIDE = 37
"""From a trace to the next one: those of a domain follow each other in the sample."""
KP_WORKER = [sys.executable, "-m", "knowledgepulse_worker.cli.entry"]


class RefusedError(Exception):
    """Why no picture is taken."""


async def main(max_used: float = MAX_USED) -> None:
    """Take all pictures."""
    used = [psutil.cpu_percent(WINDOW)]
    while used[-1] > max_used and len(used) < WINDOWS:
        used.append(psutil.cpu_percent(WINDOW))
    if used[-1] > max_used:
        raise RefusedError(
            f"the machine is busy: others use {min(used):.0f}% of its processor's time, and at most "
            f"{max_used:g}% is quiet"
        )
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=tool("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for process in psutil.Process().children(recursive=True):
            process.nice(YIELDING)  # which those that it starts inherit
        with TemporaryDirectory() as folder:
            taker = _Pictures(browser, Path(folder))
            await taker.of_scores()
            await taker.of_worker()
            taker.keep()
        await browser.close()


class _Pictures:
    """Takes pictures, which wait in a folder: a worker over its budget leaves the former ones in place."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser, self._folder = browser, folder
        command = [*KP_WORKER, "sample", "traces"]
        self._traces = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()

    async def of_scores(self) -> None:
        """Take the pictures of the table that `score` prints, and of its page."""
        scores = score_traces(self._traces)
        console = Console(record=True, width=100, file=StringIO(), highlight=False, color_system=None)
        for part in islice(report_of(scores.records, Policy(), "trace"), TABLE_PARTS):
            console.print(part, markup=False)
        table, page = self._folder / "table.html", self._folder / "scores.html"
        table.write_text(console.export_html(code_format=TABLE), encoding="utf-8")
        scores.save(page)
        for name, view in VIEWS.items():
            await self._take(page.as_uri(), f"scores-{name}", view, "#rows tr >> nth=0")
        await self._take(table.as_uri(), "score-table", {"viewport": {"width": 860, "height": 560}}, "pre")

    async def of_worker(self) -> None:
        """Take the pictures of the status page of a worker to which traces come."""
        port, file = processes.free_ports(1)[0], self._folder / "worker.toml"
        file.write_text(SETTINGS.format(servers=os.environ[SHARED_BROKER], port=port), encoding="utf-8")
        create = [*KP_WORKER, "topics", "--partitions", "4", "--config", file, "--yes"]
        await asyncio.to_thread(subprocess.run, create, check=True)
        url, log = f"http://127.0.0.1:{port}/", self._folder / "worker.log"
        with ExitStack() as stack:
            worker = processes.start(stack, [*KP_WORKER, "run", "--config", str(file)], log)
            while not await asyncio.to_thread(_answers, f"{url}readyz"):
                if worker.poll() is not None:
                    raise RefusedError(log.read_text(encoding="utf-8"))
                await asyncio.sleep(0.5)
            async with TracePublisher(load_settings(file)) as publisher:
                await self._publish(publisher, range(PUBLISHED_BEFORE), PACE)
                flowing = asyncio.create_task(
                    self._publish(publisher, range(PUBLISHED_BEFORE, len(self._traces)), TRICKLE)
                )
                for name, view in VIEWS.items():
                    await self._take(url, f"status-{name}", view, "#scores >> visible=true")
                await self._take_traces(url)
                status = await asyncio.to_thread(_status, url)
                flowing.cancel()
        if over := status["latency"]["scoring"]["over_budget"]:
            budget = status["worker"]["budget_seconds"]
            raise RefusedError(f"{over} scores took more than the budget of {budget:g} s")
        if not status["outcomes"]["rate"]:
            raise RefusedError("no trace came while the pictures were taken")

    def keep(self) -> None:
        """Put the pictures in the place of the former ones."""
        for picture in self._folder.glob("*.png"):
            shutil.copy(picture, IMAGES)

    async def _publish(self, publisher: TracePublisher, numbers: range, pace: float) -> None:
        for number in numbers:  # of all domains in turns
            await publisher.publish(self._traces[STRIDE * number % len(self._traces)])
            await asyncio.sleep(pace)

    async def _take(self, url: str, name: str, view: dict[str, Any], shown: str) -> None:
        async with await self._browser.new_context(**view) as context:
            page = await context.new_page()
            await page.goto(url)
            await page.locator(shown).wait_for()
            await page.screenshot(path=self._folder / f"{name}.png")

    async def _take_traces(self, url: str) -> None:
        """Take the picture of the latest traces, the first of each route explained."""
        async with await self._browser.new_context(**VIEWS["light"]) as context:
            page = await context.new_page()
            await page.goto(url)
            routes = page.locator(".route")
            await routes.last.wait_for()
            for route in await routes.all():
                await route.locator("button.why").first.click()
            await page.evaluate("scrollTo(0, 0)")  # boxes are those of the window
            boxes = [box for route in await routes.all() if (box := await route.bounding_box())]
            top, bottom = boxes[0]["y"], boxes[-1]["y"] + boxes[-1]["height"]
            clip = {"x": 0, "y": top - 8, "width": 1280, "height": bottom - top + 16}
            await page.screenshot(path=self._folder / "status-traces.png", full_page=True, clip=clip)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except (URLError, OSError):
        return False


def _status(url: str) -> Any:
    with urlopen(f"{url}api/status", timeout=30) as answer:
        return json.load(answer)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except RefusedError as why:
        sys.exit(f"no pictures: {why}")
