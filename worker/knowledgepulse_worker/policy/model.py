"""The policy, as settings and files have it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from knowledgepulse_schemas.trace import ENDINGS, Ending, PrivacyLevel, Visibility
from knowledgepulse_worker.policy.digests import FORMER_DIGEST_LENGTH, digest_of
from knowledgepulse_worker.policy.guards import PRIVACY_LEVELS, VISIBILITIES, Guard, Minimum
from knowledgepulse_worker.policy.learned import LearnedValue, Reading
from knowledgepulse_worker.policy.profile import Profile
from knowledgepulse_worker.policy.weights import DEFAULT_DOMAIN, REFERENCE_WEIGHTS, UnitFloat, Weights

MAX_DOMAINS = 50
"""Maximum number of profiles; their names are metric labels."""

MAX_MIN_NOVELTY = 0.5
"""The novelty of a trace that cannot be compared, which ``min_novelty`` must not withhold."""

SHARE_WINDOWS = range(30, 1_001)
"""The accepted values of ``share_window``."""

Share = Annotated[float, Field(gt=0, le=1)]
Novelty = Annotated[float, Field(ge=0, le=MAX_MIN_NOVELTY)]

_TWO_RULES = (
    "has both a threshold and a share; give one of them (until a domain has enough scores for its share, the "
    "threshold that it would inherit decides)"
)


def _some_of(values: tuple[str, ...], *, least: int = 1) -> BeforeValidator:
    """Return a validator that removes duplicates from a list and puts it in the schema's order."""
    accepted = f"{'one or more of ' if least else ''}{', '.join(values)}"

    def checked(value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) < least:
            raise ValueError(f"should be a list of {accepted}")
        for level in value:
            if level not in values:
                raise ValueError(f"should be a list of {accepted}; {level!r} is not accepted")
        return tuple(level for level in values if level in value)

    return BeforeValidator(checked)


class DomainPolicy(BaseModel):
    """The values of a domain that differ from the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    threshold: UnitFloat | None = Field(None, description="`policy.threshold` for this domain")
    share: Share | None = Field(None, description="`policy.share` for this domain")
    min_novelty: Novelty | None = Field(None, description="`policy.min_novelty` for this domain")
    min_score: UnitFloat | None = Field(None, description="`policy.min_score` for this domain")
    weights: Weights | None = Field(None, description="weights of the dimensions, which sum to 1")
    learned: LearnedValue | None = Field(
        None, description="value fitted to labels, which `kp-worker policy fit` or `policy prior` writes"
    )

    @model_validator(mode="after")
    def _one_rule(self) -> DomainPolicy:
        if self.threshold is not None and self.share is not None:
            raise ValueError(_TWO_RULES)
        return self


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
    withhold_endings: Annotated[tuple[Ending, ...], _some_of(ENDINGS, least=0)] = Field(
        default=(),
        description="values of `metadata.ending` that are rejected, whatever the score: a list of "
        "`answered`, `submitted`, `failed` and `cut_off`; by default, none, and never a trace that does not "
        "tell how its run ended",
    )

    @model_serializer(mode="wrap")
    def _without_fallback(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit the threshold beside a share, with which it could not be read again."""
        values: dict[str, Any] = serialize(self)
        if self.share is not None:
            values.pop("threshold", None)
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        if len(self.profiles) > MAX_DOMAINS:
            raise ValueError(f"at most {MAX_DOMAINS} domains are allowed, got {len(self.profiles)}")
        if self.share is not None and "threshold" in self.model_fields_set:
            raise ValueError(_TWO_RULES)
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

    @property
    def has_own_rule(self) -> bool:
        """Whether a threshold or a share is set; without one, the SDK's threshold decides."""
        own = {"threshold", "share"} & self.model_fields_set
        return bool(own) or any(
            table.threshold is not None or table.share is not None for table in self.domains.values()
        )

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
        """A short hash of everything that can change a score or a route: 32 hexadecimal digits."""
        return digest_of(self.profiles, self.guards, self.withhold_endings)

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


def by_digest(policies: Iterable[Policy]) -> dict[str, Policy]:
    """Return policies by their digests of this release and of those up to 0.3.0."""
    found = list(policies)
    return {policy.digest[:FORMER_DIGEST_LENGTH]: policy for policy in found} | {
        policy.digest: policy for policy in found
    }
