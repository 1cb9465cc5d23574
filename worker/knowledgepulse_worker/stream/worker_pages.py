"""The pages that need the worker's process: metrics, and the data of the status page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from knowledgepulse_worker.http.pages import DATA_HEADERS
from knowledgepulse_worker.http.server import CONTENT, METRICS, STATUS_DATA
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.observe.status import Status
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.verdict import Verdict


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        path: its path.
        respond: returns the response's headers and body, given the headers of the parent's request.
    """

    path: str
    respond: Callable[[Mapping[str, str]], tuple[Mapping[str, str], bytes]]


def pages(
    settings: Settings, metrics: Metrics, shadow: ShadowComparison, verdict: Callable[[], Verdict]
) -> Iterator[Page]:
    """Yield the pages."""
    status = Status(metrics, settings, shadow, verdict)

    def metrics_page(request: Mapping[str, str]) -> tuple[Mapping[str, str], bytes]:
        content_type, body = metrics.render(request.get("Accept", ""), content=CONTENT in request)
        return {"Content-Type": content_type}, body

    def status_data(request: Mapping[str, str]) -> tuple[Mapping[str, str], bytes]:
        return DATA_HEADERS, status.to_json(content=CONTENT in request)

    yield Page(STATUS_DATA, status_data)
    yield Page(METRICS, metrics_page)
