"""The policy: weights, thresholds and learned values by domain, and guards.

It can change while the worker runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from base64 import b64decode
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from knowledgepulse_schemas.trace import PrivacyLevel, Visibility

MAX_DOMAINS = 50
"""Maximum number of profiles; their names are metric labels."""

DEFAULT_DOMAIN = "default"

DIGEST_LENGTH = 32
"""The number of hexadecimal digits of a policy's digest."""

FORMER_DIGEST_LENGTH = 12
"""The number of digits up to release 0.3.0, with which a digest begins."""

LAST_POLICIES = 10
"""Number of policies that are kept to explain scores, since traces in flight outlast a change of policy."""

Guard = Literal["visibility", "privacy_level"]
"""The member of a trace's metadata that a guard checks."""

WithholdReason = Literal[Guard, "novelty", "score"]
"""Why a trace is not contributed whatever its rank: a guard, or what is below its minimum."""

Minimum = Literal["min_novelty", "min_score"]
MINIMUMS: tuple[Minimum, ...] = get_args(Minimum)
"""What a trace must reach whatever its rank; with 0, any does."""

MAX_MIN_NOVELTY = 0.5
"""The novelty of a trace that cannot be compared, which ``min_novelty`` must not withhold."""

SHARE_WINDOWS = range(30, 1_001)
"""The accepted values of ``share_window``."""

VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)
PRIVACY_LEVELS: tuple[PrivacyLevel, ...] = get_args(PrivacyLevel)

UnitFloat = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Novelty = Annotated[float, Field(ge=0, le=MAX_MIN_NOVELTY)]


def _some_of(values: tuple[str, ...]) -> BeforeValidator:
    """Return a validator that removes duplicates from a list and puts it in the schema's order."""
    accepted = ", ".join(values)

    def checked(value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(f"should be a list of one or more of {accepted}")
        for level in value:
            if level not in values:
                raise ValueError(f"should be a list of one or more of {accepted}; {level!r} is not accepted")
        return tuple(level for level in values if level in value)

    return BeforeValidator(checked)


def _finite(value: JsonValue) -> JsonValue:
    """Return a value without numbers that JSON lacks."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError("should have no nan and no infinite number") from None
    return value


class Weights(BaseModel):
    """The dimensions' weights in the score, which sum to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    complexity: UnitFloat
    novelty: UnitFloat
    tool_diversity: UnitFloat
    outcome_confidence: UnitFloat

    @model_validator(mode="after")
    def _sum_to_one(self) -> Weights:
        total = math.fsum(weight for _, weight in self)
        if not math.isclose(total, 1, abs_tol=1e-9):
            terms = " + ".join(f"{name} {weight!r}" for name, weight in self)
            raise ValueError(f"the weights must sum to 1, but {terms} = {total!r}")
        return self


DIMENSIONS = tuple(Weights.model_fields)
"""The names of a score's dimensions, in the order of the formula."""


class Reading(IntEnum):
    """What learned values read of a trace besides its dimensions; each includes those before."""

    NOTHING = 0
    COUNTS = 1
    WORDS = 2


FACTS_VERSION = 1
"""The version of the set of facts. A later one adds facts, and changes none."""

FACT_NAMES = (
    "steps", "characters", "calls", "tools", "thought_length", "observation_length", "result_length",
    "one_tool_share", "repeated_share", "failed_share", "recovered_share", "last_failed", "ends_observed",
    "declines", "asks",
)  # fmt: skip
"""The names of the facts, which :mod:`knowledgepulse_worker.scoring.facts` computes."""

TERMS = (*DIMENSIONS, *FACT_NAMES)
"""The names of all terms that a learned value may have."""


class Term(BaseModel):
    """The part of one fact or dimension in a learned value.

    Its value, less ``mean``, in units of ``deviation`` and clipped to ``-clip..clip``, is multiplied by
    ``weight``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    mean: FiniteFloat
    deviation: Annotated[FiniteFloat, Field(gt=0)]
    weight: Annotated[float, Field(ge=-100, le=100)]
    clip: Annotated[float, Field(gt=0, le=100)]


BUCKETS = 1024
"""The number of buckets into which the words of traces are hashed."""


def _bucket_weights(text: str) -> str:
    try:
        weights = b64decode(text, validate=True)
    except ValueError:
        weights = b""
    if len(weights) != BUCKETS:
        raise ValueError(f"should be the base64 of {BUCKETS:,} bytes, as `kp-worker policy fit` writes it")
    return text


class Words(BaseModel):
    """The part of a trace's words in a learned value.

    Each distinct word counts as much as the bucket that it is hashed into. Their sum is divided by the square
    root of the number of words, so that long traces do not outweigh short ones. The usual sum is subtracted,
    as the mean is of a fact.

    Attributes:
        unit: what a weight of 1 adds to the logarithm of the odds.
        mean: the mean of the labelled traces, which is subtracted.
        weights: the weight of each bucket, a signed byte, in base64.
        strongest: by bucket, the most frequent words of the labelled traces in it, with spaces between them,
            the strongest bucket first. They affect no score: a person sees from them what was learned.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    unit: Annotated[float, Field(gt=0, le=100)]
    mean: Annotated[float, Field(ge=-1000, le=1000)]
    weights: Annotated[str, AfterValidator(_bucket_weights)]
    strongest: dict[Annotated[int, Field(ge=0, lt=BUCKETS)], str] = Field(default_factory=dict)

    @cached_property
    def table(self) -> bytes:
        """The weight of each bucket, a signed byte."""
        return b64decode(self.weights)


class FitOrigin(BaseModel):
    """The origin of a learned value, for people; it affects no score, so unknown members are kept.

    They are JSON values, since the topic of policies keeps JSON, which has no NaN, infinity or date.

    Attributes:
        on: the date of the fit.
        labels: number of labels by source.
        traces: number of labelled traces.
        kept: number of these that are worth keeping.
        groups: number of independent groups, such as tasks.
        agents: the agents of the traces.
        auc: the AUC on traces that were not fitted to, with its 95% interval.
        within_groups: likewise over pairs of traces of one group; None if there are too few.
        new_agents: likewise over traces of agents that were not fitted to; None if there are too few.
        ids: hashes of the traces' ids, by which they are left out of an evaluation; None if they are unknown.
    """

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, Annotated[JsonValue, AfterValidator(_finite)]]

    on: str
    labels: dict[str, int]
    traces: int
    kept: int
    groups: int
    agents: tuple[str, ...] = ()
    auc: tuple[FiniteFloat, FiniteFloat, FiniteFloat]
    within_groups: FiniteFloat | None = None
    new_agents: FiniteFloat | None = None
    ids: str | None = None


class LearnedValue(BaseModel):
    """A value that was fitted to labels: the probability that a trace is worth keeping.

    It is the logistic function of ``intercept`` plus the terms and the words. ``share`` is its part in the
    score; with 0, the score is that of the KnowledgePulse formula. ``prior`` names the prior that the weights
    are of, if they were not fitted to labels; it affects no score.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    share: UnitFloat = 0.0
    facts_version: Annotated[int, Field(ge=1)]
    intercept: Annotated[float, Field(ge=-1000, le=1000)]
    terms: dict[str, Term]
    words: Words | None = None
    prior: str | None = None
    fitted: FitOrigin | None = None

    @model_validator(mode="after")
    def _known(self) -> LearnedValue:
        if self.facts_version > FACTS_VERSION:
            raise ValueError(f"facts_version {self.facts_version} belongs to a later release than this")
        if unknown := [name for name in self.terms if name not in TERMS]:
            raise ValueError(f"there is no fact or dimension {unknown[0]!r}; known: {', '.join(TERMS)}")
        return self


class DomainPolicy(BaseModel):
    """The values of a domain that differ from the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    threshold: UnitFloat | None = None
    share: Share | None = None
    min_novelty: Novelty | None = None
    min_score: UnitFloat | None = None
    weights: Weights | None = None
    learned: LearnedValue | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> DomainPolicy:
        if self.threshold is not None and self.share is not None:
            raise ValueError(_TWO_RULES)
        return self


_TWO_RULES = (
    "has both a threshold and a share; give one of them (until a domain has enough scores for its share, the "
    "threshold that it would inherit decides)"
)


def _weights(*weights: float) -> Weights:
    return Weights(**dict(zip(DIMENSIONS, weights, strict=True)))


REFERENCE_WEIGHTS = {
    DEFAULT_DOMAIN: _weights(0.25, 0.35, 0.15, 0.25),
    "finance": _weights(0.20, 0.25, 0.10, 0.45),
    "code": _weights(0.20, 0.30, 0.30, 0.20),
    "medical": _weights(0.15, 0.20, 0.10, 0.55),
    "customer_service": _weights(0.20, 0.30, 0.20, 0.30),
}
"""The weight profiles of the KnowledgePulse SDK 0.1.1."""


@dataclass(frozen=True)
class Profile:
    """The effective values of a domain.

    Attributes:
        domain: the profile's name.
        weights: the weights of the dimensions.
        threshold: the lowest score that passes; with a share, as long as there are too few scores for it.
        learned: the learned value; None without an effective one.
        share: the share of the best traces that passes; None if the threshold decides.
        share_window: the greatest number of last scores among which a trace is ranked.
        agent_cap: the greatest part of the share's places that the better scores of one agent take from
            another's; 1 caps nothing.
        min_novelty: the lowest novelty that is not withheld.
        min_score: the lowest score that is not withheld.
    """

    domain: str
    weights: Weights
    threshold: float
    learned: LearnedValue | None = None
    share: float | None = None
    share_window: int = 0
    agent_cap: float = 1.0
    min_novelty: float = 0.0
    min_score: float = 0.0

    @property
    def rule(self) -> dict[str, float]:
        """The share, or else the threshold, as a domain's own table has it."""
        return {"threshold": self.threshold} if self.share is None else {"share": self.share}

    def window(self, count: int) -> int:
        """Return the number of last scores among which a trace is ranked, when there have been ``count``.

        While the novelty cache fills, novelty falls, and a trace among older ones ranks low. So as long as
        the window is not full, only the newer half of the scores counts, but enough of them for one place.
        """
        return min(self.share_window, max(self._least, count // 2))

    def counted_of_agent(self, passing: int) -> int | None:
        """Return how many better scores of one agent count in another's rank; None if all do.

        ``passing``: the number of scores that pass.
        """
        return None if self.agent_cap == 1 else max(1, places(self.agent_cap, passing))

    @property
    def ranking(self) -> tuple[float, ...]:
        """What decides on ranks under a share, without what has no effect."""
        if self.share is None:
            return ()
        cap = () if self.agent_cap == 1 else (self.agent_cap,)
        return (self.share, self.share_window, *cap)

    @cached_property
    def _least(self) -> int:
        """The number of scores of which the share is one place."""
        return 0 if self.share is None else math.ceil(1 / self.share)

    @cached_property
    def scale(self) -> str:
        """A hash of everything that gives the score: only scores of equal scale are ranked together."""
        weights = [weight for _, weight in self.weights]
        learned = self.learned and (self.learned.share, self.learned.intercept, sorted(self.terms))
        given = (weights, learned) if self.words is None else (weights, learned, *self.words)
        return hashlib.sha256(repr(given).encode()).hexdigest()[:12]

    @cached_property
    def terms(self) -> tuple[tuple[str, float, float, float, float], ...]:
        """Name, mean, deviation, weight and clip of each term, which are read faster than models."""
        terms = self.learned.terms if self.learned else {}
        return tuple(
            (name, term.mean, term.deviation, term.weight, term.clip) for name, term in terms.items()
        )

    @property
    def reading(self) -> Reading:
        """What its learned value reads of a trace."""
        if self.learned is None:
            return Reading.NOTHING
        return Reading.COUNTS if self.learned.words is None else Reading.WORDS

    @cached_property
    def words(self) -> tuple[float, float, bytes] | None:
        """The unit, the mean and the weights of words; None without."""
        words = self.learned.words if self.learned else None
        return None if words is None else (words.unit, words.mean, words.table)


class PolicyInForce:
    """The current policies, which scoring reads for each trace.

    Attributes:
        shadow: the policy whose decisions are only compared; None without one.
        refused: why the latest edit of the policy is not in force, and which is; empty without one.
        since: when the policy came into force, in seconds since the epoch.
    """

    def __init__(self, policy: Policy, shadow: Policy | None = None) -> None:
        self._latest: deque[Policy] = deque(maxlen=LAST_POLICIES)
        self.policy = policy
        self.shadow = shadow
        self.refused = ""

    @property
    def policy(self) -> Policy:
        """The policy, which can be replaced at any time; earlier decisions stand."""
        return self._latest[-1]

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._latest.append(policy)
        self.since = time.time()

    def known(self, digest: str) -> Policy | None:
        """Return the policy with a digest, if it is among the latest :data:`LAST_POLICIES`."""
        return next((policy for policy in self._latest if is_digest_of(policy, digest)), None)

    @property
    def reading(self) -> Reading:
        """What the learned values of both policies read of a trace."""
        reading = self.policy.reading
        return reading if self.shadow is None else max(reading, self.shadow.reading)


class Policy(BaseModel):
    """Weights and thresholds by domain, and the guards before `contribute`.

    A domain inherits the values that it omits from the reference profile of the same name, or from
    ``default`` if there is none. A domain that is not listed silently uses ``default``, as in the SDK.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    threshold: UnitFloat = Field(
        default=0.75,
        description="lowest score that is routed to `contribute`; with a share, only as long as a domain has "
        "too few scores for it",
    )
    share: Share | None = Field(
        default=None,
        description="share of the traces that is routed to `contribute`, instead of `threshold`: those that "
        "are among the best of the last `share_window` of their partition and domain",
    )
    share_window: int = Field(
        default=50,
        ge=SHARE_WINDOWS.start,
        lt=SHARE_WINDOWS.stop,
        description="number of last scores of a partition and domain among which a share is counted; until "
        "there are twice as many, it is counted among the newer half",
    )
    agent_cap: Share = Field(
        default=1.0,
        description="greatest part of the places of a share that the better scores of one agent "
        "(`metadata.agent_id`) take from the others; 1 caps nothing",
    )
    min_novelty: Novelty = Field(
        default=0.0,
        description="lowest novelty of a contributed trace; more similar ones are rejected, whatever their "
        "score",
    )
    min_score: UnitFloat = Field(
        default=0.0,
        description="lowest score of a contributed trace, whatever its rank or the threshold; lower ones are "
        "rejected, and a share is that of the others",
    )
    domains: dict[str, DomainPolicy] = Field(
        default_factory=dict,
        description="`<name>.threshold` or `<name>.share`, `<name>.min_novelty`, `<name>.min_score` and "
        "`<name>.weights` of each domain that differs from the default, and `<name>.learned`, which "
        "`kp-worker policy fit` or `kp-worker policy prior` writes",
    )
    contribute_visibility: Annotated[tuple[Visibility, ...] | None, _some_of(VISIBILITIES)] = Field(
        default=None,
        description="values of `metadata.visibility` that may be contributed: a list of `private`, `org` and "
        "`network`; traces with any other value are rejected; by default, all values are accepted",
    )
    contribute_privacy_level: Annotated[tuple[PrivacyLevel, ...] | None, _some_of(PRIVACY_LEVELS)] = Field(
        default=None,
        description="values of `metadata.privacy_level` that may be contributed: a list of `aggregated`, "
        "`federated` and `private`; traces with any other value are rejected; by default, all values are "
        "accepted",
    )

    @model_serializer(mode="wrap")
    def _without_fallback(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit the threshold beside a share, with which it could not be read again."""
        values: dict[str, Any] = serialize(self)
        if self.share is not None:
            values.pop("threshold", None)
        return values

    @model_validator(mode="after")
    def _bounded(self) -> Policy:
        if len(self.profiles) > MAX_DOMAINS:
            raise ValueError(f"at most {MAX_DOMAINS} domains are allowed, got {len(self.profiles)}")
        return self

    @model_validator(mode="after")
    def _one_rule(self) -> Policy:
        if self.share is not None and "threshold" in self.model_fields_set:
            raise ValueError(_TWO_RULES)
        return self

    @model_validator(mode="after")
    def _window_for_each_share(self) -> Policy:
        for name, profile in self.profiles.items():
            if profile.share is not None and math.ceil(1 / profile.share) > self.share_window:
                raise ValueError(
                    f"the share {profile.share!r} of {name} is less than one of the last {self.share_window} "
                    "traces; raise share_window"
                )
        return self

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """All profiles by domain, including ``default``."""
        default_weights = self._weights(DEFAULT_DOMAIN) or REFERENCE_WEIGHTS[DEFAULT_DOMAIN]
        return {
            name: Profile(
                name,
                self._weights(name) or default_weights,
                self._nearest(name, "threshold"),  # which a share inherits, as it has none
                self._learned(name),
                self._share(name),
                self.share_window,
                self.agent_cap,
                self._nearest(name, "min_novelty"),
                self._nearest(name, "min_score"),
            )
            for name in [
                *REFERENCE_WEIGHTS,
                *(name for name in self.domains if name not in REFERENCE_WEIGHTS),
            ]
        }

    def profile(self, task_domain: str) -> Profile:
        """Return the profile with exactly this name, else ``default``."""
        return self.profiles.get(task_domain) or self.profiles[DEFAULT_DOMAIN]

    @cached_property
    def reading(self) -> Reading:
        """What its learned values read of a trace."""
        return max(profile.reading for profile in self.profiles.values())

    @cached_property
    def guards(self) -> dict[Guard, tuple[str, ...]]:
        """The values that may be contributed, by guard."""
        return {
            "visibility": self.contribute_visibility or VISIBILITIES,
            "privacy_level": self.contribute_privacy_level or PRIVACY_LEVELS,
        }

    @cached_property
    def digest(self) -> str:
        """A short hash of everything that can change a score or a route: 32 hexadecimal digits.

        It begins with the digest that releases up to 0.3.0 gave the policy, which their outputs carry. The
        rest is a hash of canonical JSON, in which no two different policies are alike.
        """
        effective = {
            "domains": {
                name: {
                    "threshold": profile.threshold,
                    "weights": profile.weights.model_dump(),
                    "learned": profile.learned
                    and [profile.learned.share, profile.learned.intercept, sorted(profile.terms)],
                    **(
                        {}
                        if profile.words is None
                        else {"words": [*profile.words[:2], profile.words[2].hex()]}
                    ),
                    **({"share": ranking} if (ranking := profile.ranking) else {}),
                    **{minimum: value for minimum in MINIMUMS if (value := getattr(profile, minimum))},
                }
                for name, profile in self.profiles.items()
            },
            # Nothing is added for what has no effect, so that later releases keep the digests, too.
            "guards": {
                guard: listed
                for guard, listed in self.guards.items()
                if listed not in (VISIBILITIES, PRIVACY_LEVELS)
            },
        }
        canonical = json.dumps(effective, sort_keys=True, allow_nan=False).encode()
        former = self._former_digest()
        return former + hashlib.sha256(canonical).hexdigest()[: DIGEST_LENGTH - len(former)]

    def _former_digest(self) -> str:
        """Return the digest up to release 0.3.0, in which a domain's name could look like another domain.

        Policies that only later releases know differ from those that these had.
        """
        lines = [
            f"{name} {p.threshold!r} {sorted(p.weights.model_dump().items())!r}"
            for name, p in sorted(self.profiles.items())
        ]
        lines += [
            f"learned {name} {learned.share!r} {learned.intercept!r} {sorted(p.terms)!r}"
            for name, p in sorted(self.profiles.items())
            if (learned := p.learned)
        ]
        lines += [
            f"words {name} {words!r}" for name, p in sorted(self.profiles.items()) if (words := p.words)
        ]
        lines += [
            " ".join(["share", name, *map(repr, ranking)])
            for name, p in sorted(self.profiles.items())
            if (ranking := p.ranking)
        ]
        lines += [
            f"{minimum} {name} {value!r}"
            for minimum in MINIMUMS
            for name, p in sorted(self.profiles.items())
            if (value := getattr(p, minimum))
        ]
        lines += [
            f"contribute_{guard} {listed!r}"
            for guard, listed in self.guards.items()
            if listed not in (VISIBILITIES, PRIVACY_LEVELS)
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:FORMER_DIGEST_LENGTH]

    def _weights(self, name: str) -> Weights | None:
        domain = self.domains.get(name)
        return domain.weights if domain and domain.weights else REFERENCE_WEIGHTS.get(name)

    def _learned(self, name: str) -> LearnedValue | None:
        """Return the domain's own learned value; others do not inherit it, since it does not transfer."""
        domain = self.domains.get(name)
        return domain.learned if domain and domain.learned and domain.learned.share else None

    def _nearest(self, name: str, setting: Literal["threshold", Minimum]) -> float:
        """Return the setting of the nearest table that has it."""
        named: Iterator[float | None] = (getattr(table, setting) for table in self._tables(name))
        own: float = getattr(self, setting)
        return next((value for value in named if value is not None), own)

    def _share(self, name: str) -> float | None:
        """Return the share, unless a nearer table has a threshold."""
        tables = (table for table in self._tables(name) if not table.share is table.threshold is None)
        nearest = next(tables, None)
        return self.share if nearest is None else nearest.share

    def _tables(self, name: str) -> list[DomainPolicy]:
        """Return the tables from which a domain takes its values, the nearest first."""
        named = (self.domains.get(name), self.domains.get(DEFAULT_DOMAIN))
        return [domain for domain in named if domain]


def is_digest_of(policy: Policy, digest: str) -> bool:
    """Return whether a digest, of this release or of one up to 0.3.0, is the policy's."""
    return digest in (policy.digest, policy.digest[:FORMER_DIGEST_LENGTH])


def are_of_one_policy(first: str, second: str) -> bool:
    """Return whether two digests may be of one policy; either may be of a release up to 0.3.0."""
    if len(first) == len(second):
        return first == second
    return bool(first and second) and first[:FORMER_DIGEST_LENGTH] == second[:FORMER_DIGEST_LENGTH]


def by_digest(policies: Iterable[Policy]) -> dict[str, Policy]:
    """Return policies by their digests of this release and of those up to 0.3.0."""
    found = list(policies)
    return {policy.digest[:FORMER_DIGEST_LENGTH]: policy for policy in found} | {
        policy.digest: policy for policy in found
    }


def begun_anew(old: Policy, new: Policy) -> list[str]:
    """Return the domains whose last scores begin anew under a new policy, since theirs are not comparable."""
    return [
        name
        for name, profile in new.profiles.items()
        if None not in (profile.share, old.profile(name).share) and profile.scale != old.profile(name).scale
    ]


def places(share: float, scores: int) -> int:
    """Return how many of this number of scores a share lets pass, rounded."""
    return int(share * scores + 0.5)
