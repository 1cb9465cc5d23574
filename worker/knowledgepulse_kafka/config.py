"""The configuration of all clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Secret: TypeAlias = str | Callable[[], str | None] | None
"""A secret, or a function that returns it whenever it is needed, since secrets are renewed.

The function raises a :class:`~knowledgepulse_kafka.errors.ConfigurationError` if it cannot.
"""

TokenFunction: TypeAlias = Callable[[], Awaitable[str]]
"""Returns an access token."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The connection to the brokers, and the consumer group.

    Attributes:
        bootstrap_servers: ``host:port``, several separated by commas.
        group: the consumer group.
        security_protocol: the security of the connection.
        ssl_cafile: the certificate authorities (PEM); the system's by default.
        ssl_certfile: the client certificate and its chain (PEM). A renewed file is read without a restart.
        ssl_keyfile: the private key (PEM); by default, the key is in the certificate's file.
        ssl_key_password: the password of an encrypted private key.
        sasl_mechanism: the login mechanism of the SASL protocols.
        sasl_username: the user name for PLAIN and SCRAM.
        sasl_password: the password for PLAIN and SCRAM.
        sasl_oauthbearer_token_endpoint_url: the URL that exchanges the client credentials for a token
            (RFC 6749, section 4.4).
        sasl_oauthbearer_client_id: the client's id.
        sasl_oauthbearer_client_secret: the client's secret.
        sasl_oauthbearer_scope: the scope of the token; None leaves it to the server.
        sasl_oauthbearer_token_provider: returns tokens; it replaces the client credentials.
        session_timeout: seconds without a heartbeat until the group reassigns the partitions.
        request_timeout: seconds for the brokers to answer when records are published or read.
        password_setting: the name by which messages call the setting that has the password.
        prefix: what messages write before the names of these attributes, such as ``kafka.``.
        remedy: what messages tell about missing topics, such as the command that creates them.
    """

    bootstrap_servers: str = "localhost:9092"
    group: str = ""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_key_password: Secret = field(default=None, repr=False)
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: Secret = field(default=None, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: Secret = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_token_provider: TokenFunction | None = None
    session_timeout: float = 10.0
    request_timeout: float = 30.0
    password_setting: str = "sasl_password"  # noqa: S105 - a name
    prefix: str = ""
    remedy: str = ""


def revealed(secret: Secret) -> str | None:
    """Return a secret's text; None if there is none."""
    return secret() if callable(secret) else secret
