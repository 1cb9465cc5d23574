"""Descriptions of policy changes."""

import pytest

from knowledgepulse_worker.policy import REFERENCE_WEIGHTS, DomainPolicy, Policy
from knowledgepulse_worker.tools.policies.policy_output import changes

SDK = Policy()
CODE = REFERENCE_WEIGHTS["code"].model_copy(update={"novelty": 0.4, "tool_diversity": 0.2})


def domain(name, **changed):
    return Policy(domains={name: DomainPolicy(**changed)})


CASES = {
    "a threshold": (SDK, domain("finance", threshold=0.6), ["finance: threshold 0.75 → 0.6"]),
    "all its digits": (
        *(SDK, domain("code", threshold=0.7500000000000001)),
        ["code: threshold 0.75 → 0.7500000000000001"],
    ),
    "all domains": (SDK, Policy(threshold=0.5), ["every domain: threshold 0.75 → 0.5"]),
    "weights": (
        *(SDK, domain("code", weights=CODE)),
        ["code: weight of novelty 0.3 → 0.4, weight of tool_diversity 0.3 → 0.2"],
    ),
    "a domain of the new one": (SDK, domain("legal", threshold=0.9), ["legal: threshold 0.75 → 0.9"]),
    "a domain of the old one": (domain("legal", threshold=0.9), SDK, ["legal: threshold 0.9 → 0.75"]),
    "a domain like default": (SDK, domain("legal"), []),
    "visibilities": (
        *(SDK, Policy(threshold=0.5, contribute_visibility=["network", "org"])),
        ["every domain: threshold 0.75 → 0.5", "contribute_visibility: private, org, network → org, network"],
    ),
    "privacy levels": (
        *(SDK, Policy(contribute_privacy_level=["federated"])),
        ["contribute_privacy_level: aggregated, federated, private → federated"],
    ),
    "their order": (SDK, Policy(contribute_visibility=["org", "private", "network"]), []),
}


@pytest.mark.parametrize(("old", "new", "lines"), CASES.values(), ids=CASES)
def test_each_change_is_a_line(old, new, lines):
    assert changes(old, new) == lines
