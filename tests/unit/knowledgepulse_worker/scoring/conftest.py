"""Traces built from the members that the formula uses."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from knowledgepulse_schemas import ReasoningTrace
from support.traces import made


def _step(text: str) -> Mapping[str, Any]:
    kind, _, tool = text.partition(" ")
    return {"type": kind, "tool": {"name": tool}} if tool else {"type": kind}


@pytest.fixture(scope="session")
def make_trace() -> Callable[..., ReasoningTrace]:
    """A factory of traces from steps written as ``thought`` or ``tool_call grep``."""

    def make(
        *steps: str,
        confidence: float = 0.5,
        success: bool = True,
        task_domain: str = "general",
        **metadata: str,
    ) -> ReasoningTrace:
        members = {"confidence": confidence, "success": success, "task_domain": task_domain} | metadata
        return made(
            "Do it",
            [_step(step) for step in steps],
            **{"visibility": "network", "privacy_level": "aggregated"} | members,
        )

    return make
