"""Generate random policies for property tests."""

from hypothesis import strategies as st

from knowledgepulse_schemas.trace import ENDINGS
from knowledgepulse_worker.policy import PRIVACY_LEVELS, VISIBILITIES, DomainPolicy, Policy, Weights

UNIT = st.floats(0, 1)


@st.composite
def weights(draw):
    inner = len(Weights.model_fields) - 1
    cuts = sorted(draw(st.lists(UNIT, min_size=inner, max_size=inner)))
    parts = [high - low for low, high in zip([0, *cuts], [*cuts, 1], strict=True)]
    return Weights(**dict(zip(Weights.model_fields, parts, strict=True)))


DOMAINS = st.sampled_from(["default", "code", "legal"])
SHARES = st.floats(0.05, 1)
RULES = st.one_of(
    st.just({}), st.fixed_dictionaries({"threshold": UNIT}), st.fixed_dictionaries({"share": SHARES})
)
MIN_NOVELTIES = st.floats(0, 0.5)
MIN_SCORES = st.floats(0, 0.6)


@st.composite
def tables(draw):
    """Return the table of a domain."""
    return DomainPolicy(
        **draw(RULES),
        min_novelty=draw(st.none() | MIN_NOVELTIES),
        min_score=draw(st.none() | MIN_SCORES),
        weights=draw(st.none() | weights()),
    )


@st.composite
def policies(draw):
    """Return a policy."""
    return Policy(
        **draw(RULES),
        share_window=draw(st.integers(30, 60)),
        agent_cap=draw(st.just(1.0) | SHARES),
        min_novelty=draw(st.just(0.0) | MIN_NOVELTIES),
        min_score=draw(st.just(0.0) | MIN_SCORES),
        contribute_visibility=draw(st.none() | st.lists(st.sampled_from(VISIBILITIES), min_size=1)),
        contribute_privacy_level=draw(st.none() | st.lists(st.sampled_from(PRIVACY_LEVELS), min_size=1)),
        withhold_endings=draw(st.lists(st.sampled_from(ENDINGS))),
        domains=draw(st.dictionaries(DOMAINS, tables())),
    )


POLICIES = policies()
