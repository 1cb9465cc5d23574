"""The policy: weights, thresholds and learned values by domain, and guards.

It can change while the worker runs.
"""

from knowledgepulse_worker.policy.digests import DIGEST_LENGTH, FORMER_DIGEST_LENGTH, are_of_one_policy
from knowledgepulse_worker.policy.guards import MINIMUMS, PRIVACY_LEVELS, VISIBILITIES, Guard, WithholdReason
from knowledgepulse_worker.policy.in_force import LAST_POLICIES, PolicyInForce, begun_anew
from knowledgepulse_worker.policy.learned import (
    BUCKETS,
    FACT_NAMES,
    FACTS_VERSION,
    TERMS,
    FitOrigin,
    LearnedValue,
    Reading,
    Term,
    Words,
)
from knowledgepulse_worker.policy.model import (
    MAX_DOMAINS,
    SHARE_WINDOWS,
    DomainPolicy,
    Policy,
    by_digest,
    is_digest_of,
)
from knowledgepulse_worker.policy.profile import Profile, places
from knowledgepulse_worker.policy.routes import (
    CONTRIBUTE,
    REJECTED,
    ROUTES,
    Decision,
    Route,
)
from knowledgepulse_worker.policy.weights import DEFAULT_DOMAIN, DIMENSIONS, REFERENCE_WEIGHTS, Weights

__all__ = [
    "BUCKETS",
    "CONTRIBUTE",
    "DEFAULT_DOMAIN",
    "DIGEST_LENGTH",
    "DIMENSIONS",
    "FACTS_VERSION",
    "FACT_NAMES",
    "FORMER_DIGEST_LENGTH",
    "LAST_POLICIES",
    "MAX_DOMAINS",
    "MINIMUMS",
    "PRIVACY_LEVELS",
    "REFERENCE_WEIGHTS",
    "REJECTED",
    "ROUTES",
    "SHARE_WINDOWS",
    "TERMS",
    "VISIBILITIES",
    "Decision",
    "DomainPolicy",
    "FitOrigin",
    "Guard",
    "LearnedValue",
    "Policy",
    "PolicyInForce",
    "Profile",
    "Reading",
    "Route",
    "Term",
    "Weights",
    "WithholdReason",
    "Words",
    "are_of_one_policy",
    "begun_anew",
    "by_digest",
    "is_digest_of",
    "places",
]
