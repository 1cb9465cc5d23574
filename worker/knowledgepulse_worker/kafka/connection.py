"""The connection arguments common to all Kafka clients."""

from __future__ import annotations

from typing import Any

from knowledgepulse_worker.kafka.auth.oauth import token_provider
from knowledgepulse_worker.kafka.auth.tls import ssl_context
from knowledgepulse_worker.settings import KafkaSettings


def client_arguments(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the arguments of every aiokafka client.

    Raises:
        SettingsError: a file or a function named in the settings is unusable.
    """
    arguments: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "security_protocol": kafka.security_protocol,
    }
    if kafka.security_protocol.endswith("SSL"):
        arguments["ssl_context"] = ssl_context(kafka)
    if kafka.security_protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = kafka.sasl_mechanism
        if kafka.sasl_mechanism == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = token_provider(kafka)
        else:
            arguments["sasl_plain_username"] = kafka.sasl_username
            arguments["sasl_plain_password"] = kafka.secret("sasl_password")
    return arguments
