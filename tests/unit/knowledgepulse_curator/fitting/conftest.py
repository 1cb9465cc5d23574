"""Policies with learned values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from knowledgepulse_curator.fitting import permutations
from knowledgepulse_curator.fitting.fitted_traces import recorded
from knowledgepulse_worker.policy import FACTS_VERSION, FitOrigin, LearnedValue, Policy, Term
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies import estimates


@pytest.fixture(scope="session")
def fitted_policy() -> Callable[..., Policy]:
    """Create a policy whose learned value, more with more tool diversity, was fitted to these traces."""

    def make(records: Sequence[ScoredRecord], **others: Any) -> Policy:
        fitted = FitOrigin(
            on="2026-11-26", labels={"ann": len(records)}, traces=len(records), kept=1, groups=2,
            auc=(0.68, 0.57, 0.77), **{"ids": recorded(records)} | others,
        )  # fmt: skip
        term = Term(mean=0.5, deviation=0.3, weight=1, clip=3)
        learned = LearnedValue(
            share=1, facts_version=FACTS_VERSION, intercept=0, terms={"tool_diversity": term}, fitted=fitted
        )
        return Policy(domains={"default": {"learned": learned}})

    return make


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """Draw 200 resamples for each interval: a fifth of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimates, "RESAMPLES", 200)
        yield


@pytest.fixture(scope="module")
def few_permutations() -> Iterator[None]:
    """Judge fits by 400 permutations: a fifth of the time, and enough to exceed the level of 0.99."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(permutations, "PERMUTATIONS", 400)
        yield
