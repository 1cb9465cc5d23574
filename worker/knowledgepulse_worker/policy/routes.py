"""The routes that a scored trace can take; :mod:`knowledgepulse_worker.scoring.routing` decides between them.

Everything that differs between routes, or goes through all of them, reads this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Decision = Literal["contribute", "rejected"]
"""The name of a route."""


@dataclass(frozen=True, slots=True)
class Route:
    """A route.

    Attributes:
        name: the decision, as ledger entries, metrics, JSON and reports have it.
        topic: the setting in ``[topics]`` that names its topic.
        kept: whether its traces are worth keeping: they count as passing, redacted copies are made of them,
            and exports take them.
        participle: what happens to its traces, as the page and the members of ``/api/status`` say it.
    """

    name: Decision
    topic: str
    kept: bool
    participle: str


CONTRIBUTE = Route("contribute", topic="contribute", kept=True, participle="contributed")
REJECTED = Route("rejected", topic="rejected", kept=False, participle="rejected")

ROUTES: dict[Decision, Route] = {route.name: route for route in (CONTRIBUTE, REJECTED)}
"""All routes by their names, in the order of reports."""
