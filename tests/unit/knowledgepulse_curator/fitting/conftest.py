"""Policies with learned values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from knowledgepulse_curator.fitting import permutations
from knowledgepulse_curator.labels.fitted_traces import recorded
from knowledgepulse_curator.labels.labels import Label
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


@pytest.fixture(scope="session")
def draw(
    make_record: Callable[..., ScoredRecord],
) -> Callable[..., tuple[list[ScoredRecord], dict[str, Label]]]:
    """Draw records, and labels that say which are kept.

    A function gets a generator and the number of a record, and returns its dimensions, whether it is kept,
    and what else it has.
    """

    def make(count: int, seed: int, one: Callable[[np.random.Generator, int], tuple[Any, ...]]) -> Any:
        rng, records, labels = np.random.default_rng(seed), [], {}
        for number in range(count):
            dimensions, keep, others = one(rng, number)
            records.append(make_record(dimensions, id=f"kp:trace:{number}", **others))
            labels[f"kp:trace:{number}"] = Label(f"kp:trace:{number}", keep=bool(keep))
        return records, labels

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
