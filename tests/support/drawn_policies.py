"""Generate random policies for property tests."""

from hypothesis import strategies as st

from knowledgepulse_worker.policy import PRIVACY_LEVELS, VISIBILITIES, DomainPolicy, Policy, Weights

UNIT = st.floats(0, 1)


@st.composite
def weights(draw):
    inner = len(Weights.model_fields) - 1
    cuts = sorted(draw(st.lists(UNIT, min_size=inner, max_size=inner)))
    parts = [high - low for low, high in zip([0, *cuts], [*cuts, 1], strict=True)]
    return Weights(**dict(zip(Weights.model_fields, parts, strict=True)))


DOMAINS = st.sampled_from(["default", "code", "legal"])
POLICIES = st.builds(
    Policy,
    contribute_visibility=st.none() | st.lists(st.sampled_from(VISIBILITIES), min_size=1),
    contribute_privacy_level=st.none() | st.lists(st.sampled_from(PRIVACY_LEVELS), min_size=1),
    threshold=UNIT,
    domains=st.dictionaries(
        DOMAINS, st.builds(DomainPolicy, threshold=st.none() | UNIT, weights=st.none() | weights())
    ),
)
