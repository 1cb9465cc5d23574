"""A real browser whose pages must log no errors and make no external requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright, expect
from prometheus_client import CollectorRegistry
from yarl import URL

from knowledgepulse_schemas.trace import Ending
from knowledgepulse_worker.http.pages import DATA_HEADERS, PAGE, PAGE_HEADERS
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.recent import PublishedTrace
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.observe.status import Status
from knowledgepulse_worker.policy import Policy, PolicyInForce
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.scoring import Dimensions, RecentScores, Score, ScoredRecord, quality_score
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.stream.diagnosis import Diagnosis, Observation
from support.tools import tool

WELL = Observation(partitions=4, rate=10.0)

# By default, five seconds, in which a busy machine may do nothing at all.
expect.set_options(timeout=60_000)

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
    """Open an address and wait until the page shows something: `await visit(url, color_scheme="dark")`."""
    async with AsyncExitStack() as stack:

        async def open_page(url: str, shown: str = "main", **context: Any) -> Visit:
            opened = await browser.new_context(**context)
            stack.push_async_callback(opened.close)
            visit = Visit(await opened.new_page())
            await visit.page.goto(url)
            await visit.page.locator(shown).wait_for()
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
        self.settings = Settings()
        self.start()
        self.content = True
        self.status = 200
        self.diagnosis = Diagnosis()
        self.diagnosis.observe(WELL)
        self._offsets = count()
        self._scores = RecentScores()

    def start(self) -> None:
        """Start with no records."""
        self.metrics = Metrics(self.policy, 0.1, CollectorRegistry())
        self.shadow = ShadowComparison(PolicyInForce(self.policy))
        self.metrics.stream.set_build_info("0", "a model", "float32", "cpu")

    def restart(self) -> None:
        """Start again, as the process does while its parent runs on."""
        history = self.metrics.recent.history()
        self.start()
        self.metrics.recent.continue_from(history)

    def answer(self) -> bytes:
        """Return the process's answer."""
        status = Status(self.metrics, self.settings, self.shadow, lambda: self.diagnosis.verdict)
        return status.to_json(content=self.content)

    def finish(
        self,
        score: float | None = None,
        domain: str = "default",
        *,
        text: str = "kp:trace:1",
        task_domain: str | None = None,
        policy: str | None = None,
        overrides: tuple[str, ...] = (),
        ending: Ending | None = None,
        judged: bool | None = None,
    ) -> None:
        """Finish a trace; without a score, it has the policy's."""
        profile = self.policy.profiles[domain]
        if score is None:
            score = quality_score(Dimensions(0.5, 0.25, 1.0, 0.0), overrides, profile)
        scored = Score(score, 0.5, 0.25, 1.0, 0.0, overrides, domain, profile.threshold, text)
        scored = self._scores.decide(scored, profile)
        record = ScoredRecord(
            source=f"raw-traces/0/{next(self._offsets)}",
            id=text,
            task_domain=task_domain or domain,
            visibility="network",
            privacy_level="aggregated",
            success=True,
            confidence=0.0,
            score=scored,
            policy=policy or self.policy.digest,
            ending=ending,
            judged=judged,
        )
        trace = PublishedTrace(scored, scored.decision, text, text, record.task_domain)
        self.shadow.add(record)
        self.metrics.policy.decided([trace])
        for counted in (self.metrics.traces, self.metrics.recent):
            counted.finished({scored.decision: 1}, [0.2])
            counted.published([trace])
        self.metrics.recent.detailed(record, self.shadow.in_force.known(record.policy), text)
        self.metrics.recent.scored(0.05)

    def bury(self, *, text: str = "not JSON") -> None:
        """Finish a record as a dead letter."""
        self.metrics.traces.dead_lettered({"not_json": 1})
        for counted in (self.metrics.traces, self.metrics.recent):
            counted.finished({"dead_letter": 1}, [0.2])
        self.metrics.recent.dead_lettered(
            f"raw-traces/0/{next(self._offsets)}",
            score=None,
            failure=Failure("not_json", "InvalidRecordError", text),
            trace_id=text,
            objective=text,
        )

    async def page(self, _request: web.Request) -> web.Response:
        return web.Response(body=PAGE, headers=PAGE_HEADERS)

    async def data(self, _request: web.Request) -> web.Response:
        return web.Response(body=self.answer(), headers=DATA_HEADERS, status=self.status)


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
