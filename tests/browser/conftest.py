"""A real browser whose pages must log no errors and make no external requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright
from prometheus_client import CollectorRegistry
from yarl import URL

from support.tools import tool
from worker.observe.metrics import Metrics
from worker.observe.status import DATA_HEADERS, PAGE, PAGE_HEADERS, Status
from worker.policy import Policy
from worker.scoring import Score, ScoredRecord
from worker.settings import Settings

ARGUMENTS = [
    "--no-sandbox",  # root, as in a container, has no sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Return Debian's Chromium; fail with instructions if it is missing."""
    path = tool("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        await browser.close()


class Visit:
    """A page with its console errors and its requests."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: set[str | None] = set()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._requested)

    def _heard(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"{message.type}: {message.text}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith("data:"):
            self.asked.add(URL(request.url).authority)


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser) -> AsyncIterator[Callable[..., Awaitable[Visit]]]:
    """Open an address and wait until the page shows data: `await visit(url, color_scheme="dark")`."""
    async with AsyncExitStack() as stack:

        async def open_page(url: str, **context: Any) -> Visit:
            opened = await browser.new_context(**context)
            stack.push_async_callback(opened.close)
            visit = Visit(await opened.new_page())
            await visit.page.goto(url)
            await visit.page.locator("main").wait_for()
            return visit

        yield open_page


class Stage:
    """A worker's web pages without the worker; a test simulates its events.

    Attributes:
        content: whether content is shown.
        status: HTTP status of ``/api/status``.
    """

    url: str

    def __init__(self) -> None:
        self.policy = Policy(threshold=0.5, domains={"legal": {"threshold": 0.25}})
        self.metrics = Metrics(self.policy, 0.1, CollectorRegistry())
        self.metrics.set_build_info("0", "a model", "float32", "cpu")
        self.settings = Settings()
        self.content = True
        self.status = 200

    def finish(self, score: float, domain: str = "default", *, text: str = "kp:trace:1") -> None:
        """Finish a trace."""
        threshold = self.policy.profiles[domain].threshold
        parts = {
            "score": score,
            "complexity": 0.5,
            "novelty": 0.25,
            "tool_diversity": 1.0,
            "outcome_confidence": 0.0,
            "overrides": (),
            "domain": domain,
            "threshold": threshold,
            "nearest": text,
        }
        rescorable = Score(score, 0.5, 0.25, 1.0, 0.0, (), domain, threshold, text)
        outcome = rescorable.decision
        record = ScoredRecord(
            source="raw-traces/0/7",
            id=text,
            task_domain=domain,
            visibility="network",
            success=True,
            confidence=0.0,
            score=rescorable,
        )
        self.metrics.decided(record, text, text)
        self.metrics.published(domain, outcome, score, 0.2)
        self.metrics.recent.scored(0.05)
        self._tell(outcome, parts, None, text)

    def bury(self, *, text: str = "not JSON") -> None:
        """Finish a record as a dead letter."""
        self.metrics.dead_lettered("not_json", 0.2)
        failure = {"reason": "not_json", "exception": "RejectedRecord", "message": text}
        self._tell("dead_letter", None, failure, text)

    def _tell(self, outcome: str, score: dict[str, Any] | None, failure: Any, text: str) -> None:
        self.metrics.recent.finished(
            outcome,
            "raw-traces/0/7",
            score=score,
            failure=failure,
            trace_id=text,
            objective=text,
            end_to_end=0.2,
        )

    async def page(self, _request: web.Request) -> web.Response:
        return web.Response(body=PAGE, headers=PAGE_HEADERS)

    async def data(self, _request: web.Request) -> web.Response:
        body = Status(self.metrics, self.settings).to_json(content=self.content)
        return web.Response(body=body, headers=DATA_HEADERS, status=self.status)


@pytest_asyncio.fixture(loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    """Serve the page with the test's data."""
    stage = Stage()
    app = web.Application()
    app.add_routes([web.get("/", stage.page), web.get("/api/status", stage.data)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stage.url = "http://{}:{}/".format(*runner.addresses[0])
    yield stage
    await runner.cleanup()
