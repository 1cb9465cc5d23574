"""Settings that are valid, but may not be what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from knowledgepulse_worker.policy import REFERENCE_WEIGHTS, Policy
from knowledgepulse_worker.settings.models import Settings

_MIN_SIMILARITY = 0.75
"""That of `kode` and `code`; `customer` is a domain of its own beside `customer_service`."""


def doubts_about(settings: Settings) -> Iterator[str]:
    """Yield a line for each domain whose name is nearly that of one with weights of its own, and others."""
    kafka = settings.kafka
    if (kafka.security_protocol, kafka.sasl_mechanism) == ("SASL_PLAINTEXT", "PLAIN"):
        yield "kafka.security_protocol: SASL_PLAINTEXT: sends user name and password in clear text"
    for section, policy in (("policy", settings.policy), ("shadow", settings.shadow)):
        for doubt in () if policy is None else doubtful_domains(policy):
            yield f"{section}.{doubt}"


def doubtful_domains(policy: Policy) -> Iterator[str]:
    """Yield a line for each of a policy's domains that looks misspelt."""
    for name in policy.domains:
        close = difflib.get_close_matches(name.lower(), REFERENCE_WEIGHTS, 1, _MIN_SIMILARITY)
        if close and name not in REFERENCE_WEIGHTS:
            yield f"domains.{name}: a domain of your own; did you mean {close[0]}?"
