"""The configuration of the Kafka clients follows the settings."""

import asyncio
import sys
from dataclasses import fields

import pytest

from knowledgepulse_kafka.config import Config, revealed
from knowledgepulse_kafka.errors import ConfigurationError
from knowledgepulse_worker.settings import KafkaSettings

TOKENS = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


async def token():
    await asyncio.sleep(0)
    return "a-token"


def blocks():
    return "a-token"


@pytest.fixture(autouse=True)
def tokens(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokens", sys.modules[__name__])


def test_each_part_of_the_configuration_has_a_setting():
    of_messages = {"password_setting", "prefix", "remedy"}
    assert {field.name for field in fields(Config)} - of_messages <= KafkaSettings.model_fields.keys()


def test_a_secret_s_file_is_read_whenever_the_secret_is_needed(tmp_path):
    file = tmp_path / "password"
    file.write_text("first")
    config = KafkaSettings(ssl_key_password_file=file).client_config()
    assert revealed(config.ssl_key_password) == "first"

    file.write_text("second")
    assert revealed(config.ssl_key_password) == "second"

    file.unlink()
    with pytest.raises(ConfigurationError, match=r"kafka\.ssl_key_password_file: .*: cannot be read"):
        revealed(config.ssl_key_password)


def test_no_secret_is_shown():
    config = KafkaSettings(sasl_password="canary").client_config()
    assert "canary" not in repr(config)
    assert "canary" not in repr(Config(sasl_password="canary", ssl_key_password="canary"))


async def test_tokens_come_from_the_configured_function():
    config = KafkaSettings(**TOKENS, sasl_oauthbearer_token_provider="tokens:token").client_config()
    assert await config.sasl_oauthbearer_token_provider() == "a-token"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tokens:nosuch", "tokens:nosuch: .* has no attribute 'nosuch'"),
        ("nosuch:token", "nosuch:token: No module named 'nosuch'"),
        ("tokens:blocks", "tokens:blocks: is not an async function"),
    ],
)
def test_an_unusable_function_is_an_error_that_names_it(name, message):
    kafka = KafkaSettings(**TOKENS, sasl_oauthbearer_token_provider=name)
    with pytest.raises(ConfigurationError, match=f"kafka.sasl_oauthbearer_token_provider: {message}"):
        kafka.client_config()
