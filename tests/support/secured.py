"""Apache Kafka on Java, secured with TLS, logins and ACLs."""

from __future__ import annotations

import asyncio
import datetime
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import trustme
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from knowledgepulse_kafka.rights import Right
from knowledgepulse_worker.settings import KafkaSettings, Settings
from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.demo.kafka_node import START_LIMIT, node_settings, wait_for_answer
from knowledgepulse_worker.tools.demo.processes import LOOPBACK
from support.java_kafka import JavaKafka
from support.kafka_release import is_at_least

ROOT = Path(__file__).parents[2]
USER, PASSWORD = "worker", "canary-of-the-password-5150"
CERTIFICATE_NAME = "fleet"
LISTENERS = ("SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT")
_ANY = 1

_LOGIN = "org.apache.kafka.common.security"
FIRST_WITH_SCRAM = "3.5"
"""The first release of Kafka that keeps the users of SCRAM without ZooKeeper."""

_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512") if is_at_least(FIRST_WITH_SCRAM) else ()
_MECHANISMS = {
    "PLAIN": f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    **dict.fromkeys(_SCRAM, f"{_LOGIN}.scram.ScramLoginModule required;"),
    # Without further settings, the broker accepts unsigned tokens.
    "OAUTHBEARER": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
}


@dataclass
class SecuredBroker:
    """A broker with a listener for each protocol; ACLs apply to all listeners, except for super users."""

    ports: Mapping[str, int]
    authority: trustme.CA
    folder: Path
    command: Sequence[str]
    stack: ExitStack
    process: Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; call from the main thread, as it dies with the calling thread."""
        self.process = processes.start(self.stack, self.command, self.folder / "broker.log")

    def answered(self) -> None:
        """Wait until it responds."""
        wait_for_answer(f"{LOOPBACK}:{self.ports['PLAINTEXT']}", START_LIMIT)

    async def start_again(self, not_after: datetime.datetime | None = None) -> None:
        """Kill it, and start it again with a certificate that is valid until then."""
        assert self.process is not None
        self.process.kill()
        await asyncio.to_thread(self.process.wait)
        write_broker_certificate(self.authority, self.folder, not_after)
        self.start()
        await asyncio.to_thread(self.answered)

    def settings(self, protocol: str = "SASL_SSL", **changes: Any) -> KafkaSettings:
        """Return the settings of a client known to the broker."""
        values: dict[str, Any] = {
            "bootstrap_servers": f"{LOOPBACK}:{self.ports[protocol]}",
            "security_protocol": protocol,
        }
        if protocol.endswith("SSL"):
            values["ssl_cafile"] = self.folder / "ca.pem"
        if protocol == "SSL":
            values["ssl_certfile"] = self.folder / "client.pem"
        if protocol.startswith("SASL"):
            values |= {"sasl_username": USER, "sasl_password": PASSWORD}
            if not _SCRAM:
                values["sasl_mechanism"] = "PLAIN"
        return KafkaSettings(**values | changes)

    @asynccontextmanager
    async def rights(self) -> AsyncIterator[Rights]:
        """Manage the rights of the worker's user, who has none at first; revoke them all at the end."""
        admin = AIOKafkaAdminClient(bootstrap_servers=f"{LOOPBACK}:{self.ports['PLAINTEXT']}")
        await admin.start()
        try:
            yield Rights(admin)
        finally:
            await admin._send_request(DeleteAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY))
            await admin.close()


class Rights:
    """Grants rights to the worker's user, and revokes them."""

    def __init__(self, admin: AIOKafkaAdminClient) -> None:
        self._admin = admin

    async def grant(self, *rights: Right) -> None:
        for right in rights:
            answer = await self._admin._send_request(CreateAclsRequest(*_acl(right)))
            assert [code for code, _ in answer.creation_responses] == [0]

    async def revoke(self, *rights: Right) -> None:
        for right in rights:
            answer = await self._admin._send_request(DeleteAclsRequest(*_acl(right)))
            assert [len(found) for _, _, found in answer.filter_responses] == [1], right


def _acl(right: Right) -> tuple[int, str, int, str, str, int, int]:
    literal, prefixed, allow = 3, 4, 3
    pattern = prefixed if right.name.endswith("*") else literal
    resource = {"topic": 2, "group": 3, "transactional-id": 5}[right.resource]
    operations = {"Read": 3, "Write": 4, "Create": 5, "Alter": 7, "Describe": 8, "DescribeConfigs": 10}
    operation = operations[right.operation]
    return resource, right.name.removesuffix("*"), pattern, f"User:{USER}", "*", operation, allow


def granted_by_script(command: str, settings: Settings) -> list[Right]:
    """Return the rights that deploy/kafka-acls.sh grants for a command."""
    topics = settings.topics
    names = {
        "GROUP": settings.kafka.group,
        "RAW": topics.raw,
        "CONTRIBUTE": topics.contribute,
        "REJECTED": topics.rejected,
        "DEAD_LETTER": topics.dead_letter,
        "REDACTED": topics.redacted or "",
        "EVALUATIONS": topics.evaluations,
        "EVALUATION_SPANS": topics.evaluation_spans,
        "SPANS": settings.assemble.spans,
        "LATE": settings.assemble.late,
    }
    done = subprocess.run(
        [ROOT / "deploy" / "kafka-acls.sh", command, f"User:{USER}"],
        env=os.environ | names | {"KAFKA_ACLS": "echo"},
        capture_output=True,
        text=True,
        check=True,
    )
    rights = []
    for line in done.stdout.splitlines():
        add, *words = line.split()
        options = list(zip(words[::2], words[1::2], strict=True))
        assert (add, options[0]) == ("--add", ("--allow-principal", f"User:{USER}"))
        operations = [value for option, value in options if option == "--operation"]
        suffix = "*" if ("--resource-pattern-type", "prefixed") in options else ""
        resources = [
            (option[2:], value + suffix)
            for option, value in options[1:]
            if option not in {"--operation", "--resource-pattern-type"}
        ]
        rights += [Right(operation, *resource) for resource in resources for operation in operations]
    return rights


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Start a broker, and stop it afterwards."""
    kafka = JavaKafka.find(print)
    authority = write_certificates(folder)
    broker_port, controller_port, *ports = processes.free_ports(2 + len(LISTENERS))
    listeners = dict(zip(LISTENERS, ports, strict=True))
    settings = _broker_settings(listeners, broker_port, controller_port, folder)
    users = [f"--add-scram={mechanism}=[name={USER},password={PASSWORD}]" for mechanism in _SCRAM]
    command = kafka.formatted(folder, settings, ["-Xmx512m"], *users)
    with ExitStack() as stack:
        secured = SecuredBroker(listeners, authority, folder, command, stack)
        secured.start()
        secured.answered()
        yield secured


def _broker_settings(
    ports: Mapping[str, int], broker_port: int, controller_port: int, folder: Path
) -> dict[str, str]:
    plain = node_settings(
        clients=f"{LOOPBACK}:{ports['PLAINTEXT']}",
        advertised=f"{LOOPBACK}:{ports['PLAINTEXT']}",
        broker=f"{LOOPBACK}:{broker_port}",
        controller=f"{LOOPBACK}:{controller_port}",
    )
    listeners = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items() if name != "PLAINTEXT")
    protocols = ",".join(f"{name}:{name}" for name in ports if name != "PLAINTEXT")
    settings = plain | {
        "log.dirs": (folder / "data").as_posix(),
        "listeners": f"{plain['listeners']},{listeners}",
        "advertised.listeners": f"{plain['advertised.listeners']},{listeners}",
        "listener.security.protocol.map": f"{plain['listener.security.protocol.map']},{protocols}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # the tests' own clients, without a login
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
    }
    for listener in ("sasl_ssl", "sasl_plaintext"):
        for mechanism, login in _MECHANISMS.items():
            settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = login
        settings[f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class"] = (
            f"{_LOGIN}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        )
    return settings


def write_certificates(folder: Path) -> trustme.CA:
    """Write the certificates of an authority, a broker and a client to a folder."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    write_broker_certificate(authority, folder)
    write_client_certificate(authority, folder / "client.pem")
    return authority


def write_broker_certificate(
    authority: trustme.CA, folder: Path, not_after: datetime.datetime | None = None
) -> None:
    """Write a broker's key and certificate to its folder."""
    _write(authority.issue_cert(LOOPBACK, not_after=not_after), folder / "broker.pem")


def write_client_certificate(
    authority: trustme.CA, file: Path, not_after: datetime.datetime | None = None
) -> None:
    """Write a client's key and certificate, which identify it to the broker as the worker's user."""
    _write(authority.issue_cert(CERTIFICATE_NAME, common_name=USER, not_after=not_after), file)


def _write(issued: trustme.LeafCert, file: Path) -> None:
    # Java reads keys in PKCS 8 only.
    key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(text + b"".join(certificate.bytes() for certificate in issued.cert_chain_pems))
