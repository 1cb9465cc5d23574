"""A domain whose name is nearly that of one with weights of its own is told."""

import pytest

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import Settings, doubtful_domains, doubts_about


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fiance", "finance"),
        ("Code", "code"),
        ("CODE", "code"),
        ("kode", "code"),
        ("customer-service", "customer_service"),
        ("finance", None),
        ("legal", None),
        ("customer", None),
        ("coding", None),
    ],
)
def test_a_misspelt_domain_is_told(name, meant):
    told = [f"domains.{name}: a domain of your own; did you mean {meant}?"] if meant else []

    assert list(doubtful_domains(Policy(domains={name: {"threshold": 0.5}}))) == told


def test_the_shadow_policy_is_checked_too():
    settings = Settings(shadow={"domains": {"kode": {"threshold": 0.5}}})

    assert list(doubts_about(settings)) == ["shadow.domains.kode: a domain of your own; did you mean code?"]


def test_a_password_in_clear_text_is_told_once_of_the_setting():
    """The client said it at each connection, before the line that named what was wrong."""
    kafka = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "a", "sasl_password": "b"}
    of_plain, of_scram = (
        Settings.model_validate({"kafka": kafka | {"sasl_mechanism": mechanism}})
        for mechanism in ("PLAIN", "SCRAM-SHA-512")
    )

    assert list(doubts_about(of_plain)) == [
        "kafka.security_protocol: SASL_PLAINTEXT: sends user name and password in clear text"
    ]
    assert list(doubts_about(of_scram)) == []
