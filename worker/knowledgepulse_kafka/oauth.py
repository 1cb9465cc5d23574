"""Access tokens for OAUTHBEARER (KIP-255), from client credentials (KIP-768) or a given function."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from knowledgepulse_kafka.config import Config, TokenFunction, revealed
from knowledgepulse_kafka.safe_text import without_secrets

if TYPE_CHECKING:
    from knowledgepulse_kafka.http_client import HttpAnswer

_TIMEOUT = 10.0
"""Seconds that a request for a token may take."""

_MAX_ANSWER = 1_048_576
"""Maximum size of the endpoint's response in bytes."""

_USED_SHARE = 0.8
"""Fraction of a token's lifetime after which the next connection gets a new one."""


class TokenError(KafkaError):  # type: ignore[misc]  # aiokafka is untyped
    """No token is available; Kafka's client treats this as a failed connection and retries.

    Attributes:
        refused: whether the server refused the credentials. Otherwise, a retry may help.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused

    def __str__(self) -> str:
        return str(self.args[0])


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is untyped
    """Provides Kafka's client with a token for each connection.

    Args:
        function: returns a token.
        prefix: what messages write before the name of the setting.
    """

    def __init__(self, function: TokenFunction, prefix: str = "") -> None:
        self._function = function
        self._setting = f"{prefix}sasl_oauthbearer_token_provider"

    async def token(self) -> str:
        """Return a token.

        Raises:
            TokenError: the function failed. Only the class of an unexpected error is named, since its text
                may contain a secret.
        """
        try:
            token = await self._function()
        except TokenError:
            raise
        except Exception as error:  # an error in a user's function must not end the client
            raise TokenError(f"{self._setting}: {type(error).__name__}") from error
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise TokenError(f"{self._setting}: returned {type(token).__name__}, which is not a token")
        return token


def token_provider(config: Config) -> TokenProvider:
    """Return the configured token provider.

    Raises:
        ConfigurationError: the client's secret cannot be read.
    """
    function = config.sasl_oauthbearer_token_provider
    if function is None:
        function = ClientCredentials(
            config.sasl_oauthbearer_token_endpoint_url or "",
            config.sasl_oauthbearer_client_id or "",
            revealed(config.sasl_oauthbearer_client_secret) or "",
            config.sasl_oauthbearer_scope,
            config.prefix,
        )
    return TokenProvider(function, config.prefix)


class ClientCredentials:
    """Exchanges client credentials for tokens (RFC 6749, section 4.4) and caches each token until it ages.

    Args:
        url: the token endpoint's URL.
        client_id: the client's id, sent with the secret by HTTP Basic authentication (section 2.3.1).
        client_secret: the client's secret.
        scope: the requested scope; None leaves it to the server.
        prefix: what messages write before the names of the settings.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        scope: str | None,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        credentials = b64encode(f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()).decode()
        self._authorization = f"Basic {credentials}"
        self._secrets = (client_secret, quote_plus(client_secret), credentials)
        self._form = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
        self._endpoint = f"{prefix}sasl_oauthbearer_token_endpoint_url: {without_secrets(url)}"
        names = f"{prefix}sasl_oauthbearer_client_id, {prefix}sasl_oauthbearer_client_secret"
        self._refused = f"{names}: {without_secrets(url)} refuses them"
        self._clock = clock
        self._token = ""
        self._renew_at = float("-inf")

    async def __call__(self) -> str:
        """Return a token that has not aged yet.

        Raises:
            TokenError: the endpoint cannot be reached, or returns no token.
        """
        if self._clock() >= self._renew_at:
            requested = self._clock()
            self._token, lifetime = await self._request()
            self._renew_at = requested + _USED_SHARE * lifetime
        return self._token

    async def _request(self) -> tuple[str, float]:
        import aiohttp  # noqa: PLC0415 - clients without OAuth start faster
        from yarl import URL  # noqa: PLC0415

        from knowledgepulse_kafka.http_client import reason, request, shortened_answer  # noqa: PLC0415

        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                answer = await request(
                    session, "POST", URL(self._url), max_bytes=_MAX_ANSWER, data=self._form, headers=headers
                )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TokenError(f"{self._endpoint}: {reason(error)}") from error
        except ValueError as error:  # not a URL, or a URL that contains a user name
            raise TokenError(f"{self._endpoint}: is not a usable URL") from error
        given = _members(answer)
        if answer.status in (400, 401):
            said = given.get("error")
            said = (
                shortened_answer(said, self._secrets)
                if isinstance(said, str)
                else f"HTTP status {answer.status}"
            )
            raise TokenError(f"{self._refused}: {said}", refused=True)
        if answer.status != 200 or not isinstance(given.get("access_token"), str):
            raise TokenError(f"{self._endpoint}: returned no token: HTTP status {answer.status}")
        seconds = 0.0  # if the server does not state it
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            seconds = max(0.0, float(given["expires_in"]))
        return given["access_token"], seconds


def _members(answer: HttpAnswer) -> dict[str, Any]:
    """Return the body's JSON object; an empty object if the body is anything else."""
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
