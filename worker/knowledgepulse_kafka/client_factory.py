"""Make aiokafka's clients, all in one way.

None creates a topic by asking for it, and each waits while a broker throttles it (KIP-219).
"""

from __future__ import annotations

from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from knowledgepulse_kafka.config import Config, revealed
from knowledgepulse_kafka.oauth import token_provider
from knowledgepulse_kafka.reaching import reaching
from knowledgepulse_kafka.refused_record import telling_refusals
from knowledgepulse_kafka.request_waits import Waits, noting
from knowledgepulse_kafka.stopping import stoppable
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.throttling import waiting_out
from knowledgepulse_kafka.tls import RenewedContext
from knowledgepulse_kafka.topic_creation import never_creating

_Client = TypeVar("_Client")


def new_client(config: Config, **options: Any) -> AIOKafkaClient:
    """Return a client for single requests, with more of aiokafka's options.

    Raises:
        ConfigurationError: a file or a function named in the configuration is unusable; so for all clients.
    """
    return never_creating(reaching(AIOKafkaClient(**client_arguments(config), **options)))


def new_consumer(
    config: Config, throttle: Throttle, waits: Waits | None = None, **options: Any
) -> AIOKafkaConsumer:
    """Return a consumer of committed records, with more of aiokafka's options; see :func:`adapted`."""
    consumer = AIOKafkaConsumer(**client_arguments(config), isolation_level="read_committed", **options)
    return adapted(consumer, throttle, waits)


def new_producer(config: Config, throttle: Throttle, **options: Any) -> AIOKafkaProducer:
    """Return an idempotent producer, with more of aiokafka's options."""
    return adapted(AIOKafkaProducer(**client_arguments(config), enable_idempotence=True, **options), throttle)


def new_admin_client(config: Config, throttle: Throttle) -> AIOKafkaAdminClient:
    """Return an admin client."""
    return adapted(AIOKafkaAdminClient(**client_arguments(config)), throttle)


def adapted(client: _Client, throttle: Throttle, waits: Waits | None = None) -> _Client:
    """Return a client of any kind that creates no topics, and waits while a broker throttles it.

    It reaches the brokers although addresses are dead, or have changed, and stops although they are away.

    Args:
        client: the client.
        throttle: notes the throttle times.
        waits: notes what the client waits for, if given.
    """
    reached = reaching(client)
    noted = reached if waits is None else noting(reached, waits)
    return stoppable(telling_refusals(waiting_out(never_creating(noted), throttle)))


def client_arguments(config: Config) -> dict[str, Any]:
    """Return the arguments of every aiokafka client."""
    arguments: dict[str, Any] = {
        "bootstrap_servers": config.bootstrap_servers,
        "security_protocol": config.security_protocol,
    }
    if config.security_protocol.endswith("SSL"):
        arguments["ssl_context"] = RenewedContext(config)
    if config.security_protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = config.sasl_mechanism
        if config.sasl_mechanism == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = token_provider(config)
        else:
            arguments["sasl_plain_username"] = config.sasl_username
            arguments["sasl_plain_password"] = revealed(config.sasl_password)
    return arguments
