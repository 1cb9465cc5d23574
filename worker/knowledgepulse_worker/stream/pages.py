"""The worker's web pages: metrics and the status page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from knowledgepulse_worker.http.pages import DATA_HEADERS
from knowledgepulse_worker.http.server import METRICS, STATUS, STATUS_DATA
from knowledgepulse_worker.http.verdict import Diagnosis
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.status import PAGE, PAGE_HEADERS, Status, shows_content
from knowledgepulse_worker.settings import Settings


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        path: its path.
        respond: returns the response's headers and body, given the request's headers.
    """

    path: str
    respond: Callable[[Mapping[str, str]], tuple[Mapping[str, str], bytes]]


def pages(settings: Settings, metrics: Metrics, diagnosis: Diagnosis) -> Iterator[Page]:
    """Yield the worker's pages."""
    status = Status(metrics, settings, diagnosis)

    def may_see_content(request: Mapping[str, str]) -> bool:
        return shows_content(settings.web, request.get("Host", ""))

    def metrics_page(request: Mapping[str, str]) -> tuple[Mapping[str, str], bytes]:
        content_type, body = metrics.render(request.get("Accept", ""), content=may_see_content(request))
        return {"Content-Type": content_type}, body

    def status_data(request: Mapping[str, str]) -> tuple[Mapping[str, str], bytes]:
        return DATA_HEADERS, status.to_json(content=may_see_content(request))

    yield Page(STATUS, lambda _request: (PAGE_HEADERS, PAGE))
    yield Page(STATUS_DATA, status_data)
    yield Page(METRICS, metrics_page)
