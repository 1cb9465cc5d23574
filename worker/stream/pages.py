"""The child's web pages on Faust's web server: metrics and the status page."""

from __future__ import annotations

from faust import App
from faust.web import Request, Response, View
from faust.web.base import BlueprintManager

from worker.http.server import METRICS, STATUS, STATUS_DATA
from worker.observe.metrics import Metrics
from worker.observe.status import DATA_HEADERS, PAGE, PAGE_HEADERS, Status, shows_content
from worker.settings import Settings


def add_pages(app: App, settings: Settings, metrics: Metrics) -> None:
    """Serve the worker's pages instead of Faust's own."""
    status = Status(metrics, settings)

    def may_see_content(request: Request) -> bool:
        return shows_content(settings.web, request.headers.get("Host", ""))

    async def metrics_page(view: View, request: Request) -> Response:
        accept = request.headers.get("Accept", "")
        content_type, body = metrics.render(accept, content=may_see_content(request))
        return view.bytes(body, headers={"Content-Type": content_type})

    async def status_page(view: View, _request: Request) -> Response:
        return view.bytes(PAGE, headers=dict(PAGE_HEADERS))

    async def status_data(view: View, request: Request) -> Response:
        body = status.to_json(content=may_see_content(request))
        return view.bytes(body, headers=dict(DATA_HEADERS))

    app.web.blueprints = BlueprintManager()
    app.page(STATUS, name="kp-status")(status_page)
    app.page(STATUS_DATA, name="kp-status-data")(status_data)
    app.page(METRICS, name="kp-metrics")(metrics_page)
