"""Logins, certificates and rights, on a real Kafka that asks for them."""

from __future__ import annotations

import asyncio
import base64
import datetime
import gc
import json
import os
import signal
import time
import warnings
from contextlib import asynccontextmanager

import psutil
import pytest
import trustme
from aiohttp import web

from chaos.assembly import Fleet, write
from knowledgepulse_curator.contributions import contributions_topic
from knowledgepulse_kafka import rights
from knowledgepulse_kafka.client_factory import client_arguments
from knowledgepulse_kafka.connection_diagnosis import _failures
from knowledgepulse_kafka.errors import NoBrokerError, SecurityError
from knowledgepulse_kafka.rights import Right, require_rights
from knowledgepulse_worker.kafka import worker_rights
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.worker_topics import contributions_topic_name
from knowledgepulse_worker.settings import render
from knowledgepulse_worker.tools.assemble.assembly_topics import assembly_rights, require_topics
from knowledgepulse_worker.tools.audit.stream_audit import audit_rights
from knowledgepulse_worker.tools.backends.topic_output import pull_rights, pulls_topic_name
from knowledgepulse_worker.tools.dead_letters.dead_letter_topic import dead_letter_rights
from knowledgepulse_worker.tools.dead_letters.replay import replay_rights
from knowledgepulse_worker.tools.demo.processes import LOOPBACK
from knowledgepulse_worker.tools.evaluations.run_evaluations import evaluation_rights, evaluation_topics
from knowledgepulse_worker.tools.publish.trace_publisher import publishing_rights
from support.commands import kp_worker
from support.kafka_release import needs_kafka
from support.secured import (
    FIRST_WITH_SCRAM,
    LISTENERS,
    PASSWORD,
    USER,
    granted_by_script,
    secured_broker,
    write_client_certificate,
)
from support.served import served
from support.streams import Message, Stream, own_settings, source_of

# Kafka's client does not wait until a TLS connection is closed that failed; the loop's end comes first here.
pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]

SECRET = "canary-of-the-client-secret-5150"
LONG_AGO = datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # so that the last of these connections is no other test's


@pytest.fixture
def settings(secured):
    """The worker's settings on the broker, with a group and topics of the test's own."""
    mine = own_settings("unused:1", "secured", {"embedding": {"backend": "none"}})
    kafka = secured.settings(group=mine.kafka.group)
    return mine.model_copy(update={"kafka": kafka})


@asynccontextmanager
async def token_endpoint(answers):
    """Serve what a test says as a token endpoint; yields its address and the requests that came."""
    requests = []

    async def answer(request):
        requests.append((request.headers["Authorization"], dict(await request.post())))
        status, body = answers(len(requests))
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/token", answer)
    async with served(app) as url:
        yield f"{url}/token", requests


def unsigned_token(lifetime=3600):
    """A JSON Web Token without a signature, which the broker takes in its default configuration."""
    now = int(time.time())  # a token from the future, even by a fraction of a millisecond, is refused
    parts = {"alg": "none"}, {"sub": USER, "iat": now, "exp": now + lifetime}
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, ""])


# --- ways to log in


@pytest.mark.parametrize(
    "mechanism",
    [
        "PLAIN",
        *(pytest.param(f"SCRAM-SHA-{bits}", marks=needs_kafka(FIRST_WITH_SCRAM)) for bits in (256, 512)),
    ],
)
async def test_a_login_by_password_is_taken(secured, mechanism):
    await require_rights(secured.settings(sasl_mechanism=mechanism).client_config(), [])


def oauth_settings(secured, url, **changes):
    return secured.settings(
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_id="fleet+1",
        sasl_oauthbearer_client_secret=SECRET,
        **changes,
    )


async def test_a_worker_scores_with_a_token_as_its_login(settings, secured, tmp_path, real_traces):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)

    def answers(_count):
        return 200, {"access_token": unsigned_token(), "expires_in": 3600}

    async with token_endpoint(answers) as (url, requests), secured.rights() as mine:
        kafka = oauth_settings(secured, url, sasl_oauthbearer_scope="kafka").model_copy(
            update={
                "group": settings.kafka.group,
                "sasl_oauthbearer_client_secret": None,
                "sasl_oauthbearer_client_secret_file": secret,
            }
        )
        settings = settings.model_copy(update={"kafka": kafka})
        await mine.grant(*granted_by_script("run", settings))
        operator = Stream(anonymous(secured, settings), tmp_path)
        await operator.create_topics(2)
        await reported(settings, list(DECLARED["run"](settings)), [])
        raw = await operator.publish(Message(trace) for trace in real_traces[:20])

        async with Stream(settings, tmp_path).worker() as worker:
            outputs = await operator.outputs(worker, raw)  # its child may have been replaced
            assert await worker.stop() == 0

    assert sorted(map(source_of, outputs)) == [(record.partition, record.offset) for record in raw]
    expected = base64.b64encode(f"fleet%2B1:{SECRET}".encode()).decode()
    form = {"grant_type": "client_credentials", "scope": "kafka"}
    assert [request for request in requests if request != (f"Basic {expected}", form)] == []
    assert requests


# --- what is refused, and the setting to mend

LOGIN = "kafka.sasl_username, kafka.sasl_password: .* refuses the login"


@pytest.mark.parametrize(
    ("protocol", "changes", "message"),
    [
        ("SASL_SSL", {"sasl_password": "wrong"}, LOGIN),
        ("SASL_SSL", {"sasl_password": "wrong", "sasl_mechanism": "PLAIN"}, LOGIN),
        ("SASL_SSL", {"ssl_cafile": None}, "kafka.ssl_cafile: the system's authorities: cannot verify"),
        ("SASL_SSL", {"ssl_cafile": "other-ca.pem"}, r"kafka.ssl_cafile: .*ca\.pem: cannot verify .* issuer"),
        ("SSL", {"ssl_certfile": None}, "kafka.ssl_certfile: not set: .* refuses the client certificate"),
        ("SSL", {"ssl_certfile": "expired.pem"}, r"kafka.ssl_certfile: .*expired\.pem: .* refuses"),
        ("SSL", {"ssl_certfile": "foreign.pem"}, r"kafka.ssl_certfile: .*foreign\.pem: .* refuses"),
    ],
)
async def test_a_refusal_names_the_setting_to_mend(secured, protocol, changes, message):
    folder = secured.folder
    trustme.CA().cert_pem.write_to_path(folder / "other-ca.pem")
    write_client_certificate(secured.authority, folder / "expired.pem", not_after=LONG_AGO)
    write_client_certificate(trustme.CA(), folder / "foreign.pem")
    files = {
        name: folder / value if name.startswith("ssl_") and value else value
        for name, value in changes.items()
    }

    with pytest.raises(SecurityError, match=message):
        await require_rights(secured.settings(protocol, **files).client_config(), [])


async def test_a_certificate_of_another_host_is_named(secured):
    elsewhere = f"localhost:{secured.ports['SASL_SSL']}"
    with pytest.raises(
        SecurityError, match=r"kafka\.bootstrap_servers: the certificate of localhost:.* for another host"
    ):
        await require_rights(secured.settings(bootstrap_servers=elsewhere).client_config(), [])


PROTOCOLS = [(set_to, listens) for set_to in LISTENERS for listens in LISTENERS if set_to != listens]


@pytest.mark.parametrize(("set_to", "listens"), PROTOCOLS)
async def test_a_protocol_that_the_listener_does_not_speak_is_named(secured, set_to, listens):
    there = f"{LOOPBACK}:{secured.ports[listens]}"
    with pytest.raises((SecurityError, NoBrokerError)) as raised:
        await require_rights(secured.settings(set_to, bootstrap_servers=there).client_config(), [])
    expected = "kafka.ssl_certfile" if (set_to, listens) == ("SASL_SSL", "SSL") else "kafka.security_protocol"
    assert expected in str(raised.value)


async def test_a_token_that_the_broker_refuses_is_named(secured):
    async with token_endpoint(lambda _: (200, {"access_token": unsigned_token(-60)})) as (url, _):
        with pytest.raises(SecurityError, match=r"kafka\.sasl_oauthbearer_.* refuses the login"):
            await require_rights(oauth_settings(secured, url).client_config(), [])


async def test_a_wrong_password_ends_a_command_with_78_and_one_line(settings, config):
    kafka = settings.kafka.model_copy(update={"sasl_password": None})
    file = config(settings.model_copy(update={"kafka": kafka}))

    status, _, errors = await kp_worker(
        "run", "--config", file, KP_KAFKA__SASL_PASSWORD="wrong-canary", KP_LOG__FORMAT="human"
    )

    assert (status, len(errors.splitlines())) == (os.EX_CONFIG, 1), errors
    assert "kafka.sasl_username, kafka.sasl_password: 127.0.0.1:" in errors
    assert "wrong-canary" not in errors


# --- certificates that are renewed


async def test_a_renewed_client_certificate_is_taken_by_the_next_connection(secured):
    """The worker's clients keep their context for as long as the process runs."""
    file = secured.folder / "renewed.pem"
    write_client_certificate(secured.authority, file, not_after=LONG_AGO)
    config = secured.settings("SSL", ssl_certfile=file).client_config()
    arguments = client_arguments(config)
    assert len(await failures(config, arguments)) == 1

    write_client_certificate(secured.authority, file)
    assert await failures(config, arguments) == []

    file.write_bytes(file.read_bytes()[:300])
    assert await failures(config, arguments) == [], "what was read before a half-written file stays in use"


async def failures(config, arguments):
    return [str(failure) async for failure in _failures(config, arguments)]


# --- rights

DECLARED = {
    "run": worker_rights.worker_rights,
    "topics": worker_rights.creation_rights,
    "publish": publishing_rights,
    "pull": pull_rights,
    "assemble": assembly_rights,
    "audit": audit_rights,
    "dead-letters": dead_letter_rights,
    "replay": replay_rights,
    "evaluations": evaluation_rights,
    "contributions": contributions_topic.contribution_rights,
    "export": lambda settings: rights.topic_rights(rights.READ, *settings.topics.copies),
    "policy": lambda settings: rights.topic_rights(
        rights.READ, *settings.topics.scored, f"{settings.kafka.group}-policies"
    ),
}


@pytest.mark.parametrize("command", DECLARED)
async def test_each_right_that_is_missing_is_named(secured, settings, command):
    topics = {"redacted": f"{settings.kafka.group}-redacted", "evaluations": f"{settings.kafka.group}-otlp"}
    settings = settings.model_copy(update={"topics": settings.topics.model_copy(update=topics)})
    needed = list(DECLARED[command](settings))
    granted = granted_by_script(command, settings)
    assert [
        right
        for right in granted
        if right.operation not in ("Create", "Alter") and right.resource != "transactional-id"
    ] == needed
    await Stream(anonymous(secured, settings), secured.folder).create_topics(1)
    await create_other_topics(secured, settings)

    async with secured.rights() as mine:
        await mine.grant(*granted)
        await reported(settings, needed, [])
        for right in needed:
            # Kafka also reads Alter as Describe.
            implying = [other for other in granted if (other.operation, other.name) == ("Alter", right.name)]
            await mine.revoke(right, *implying)
            await reported(settings, needed, [right])
            await mine.grant(right, *implying)


async def reported(settings, needed, missing):
    """Wait until exactly these rights are reported missing; the broker applies a change a moment later."""
    async with asyncio.timeout(120):
        while True:
            try:
                await require_rights(settings.kafka.client_config(), needed)
                found = ""
            except SecurityError as error:
                found = str(error)
            if all(str(right) in found for right in missing) and bool(found) == bool(missing):
                return
            await asyncio.sleep(0.02)


def anonymous(secured, settings):
    """The same for a super user."""
    kafka = secured.settings("PLAINTEXT", group=settings.kafka.group)
    return settings.model_copy(update={"kafka": kafka})


async def create_other_topics(secured, settings):
    async with TopicAdmin(anonymous(secured, settings).kafka, settings.topics) as admin:
        for name in (admin.replays, pulls_topic_name(settings.kafka.group), *evaluation_topics(settings)):
            await admin.create_if_missing(name, 1, {})
        await contributions_topic.create_topic(admin, contributions_topic_name(settings.kafka.group))
        await admin.create(settings.assemble.spans, 1, 1, {})
        await require_topics(admin, settings)


async def test_a_worker_without_its_transactional_id_ends_with_one_line(settings, secured, config, tmp_path):
    settings = with_password_file(settings, tmp_path)
    await Stream(anonymous(secured, settings), tmp_path).create_topics(1)
    async with secured.rights() as mine:
        granted = [
            right for right in granted_by_script("run", settings) if right.resource != "transactional-id"
        ]
        await mine.grant(*granted)
        await reported(settings, granted, [])

        status, _, errors = await kp_worker("run", "--config", config(settings), KP_LOG__FORMAT="human")

    assert (status, len(errors.splitlines())) == (os.EX_CONFIG, 1), errors
    assert f"Write on transactional-id {settings.kafka.group}-run-*" in errors


async def readiness(worker, status):
    """Wait until the readiness probe answers with a status."""
    async with asyncio.timeout(120):
        while (await worker.get("/readyz"))[0] != status:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("operation", "resource", "name"),
    [("Write", "transactional-id", "{group}-run-*"), ("Read", "topic", "{raw}")],
)
async def test_a_right_that_is_taken_away_is_named_and_the_worker_goes_on_once_it_is_back(
    operation, resource, name, settings, secured, tmp_path, real_traces
):
    settings = with_password_file(settings, tmp_path)
    names = {"group": settings.kafka.group, "raw": settings.topics.raw}
    right = Right(operation, resource, name.format(**names))
    operator = Stream(anonymous(secured, settings), tmp_path)
    async with secured.rights() as mine:
        await mine.grant(*granted_by_script("run", settings))
        await operator.create_topics(1)
        async with Stream(settings, tmp_path).worker() as worker:
            await worker.owns(1)
            await operator.publish([Message(real_traces[0])])
            await worker.published(1)
            await readiness(worker, 200)
            await mine.revoke(right)
            await operator.publish(Message(trace) for trace in real_traces[1:9])
            await worker.logged(f"the brokers' ACLs do not allow: {right}")
            await worker.logged("ended with status 78; starting it again")
            await readiness(worker, 503)

            await mine.grant(right)
            raw = await operator.read(settings.topics.raw)
            outputs = await operator.outputs(worker, raw)
            assert await worker.stop() == 0
            assert "raceback" not in worker.log()
    assert sorted(map(source_of, outputs)) == [(record.partition, record.offset) for record in raw]


async def test_every_command_does_its_work_with_the_least_rights(
    settings, secured, config, tmp_path, real_traces
):
    """And no secret is seen anywhere meanwhile."""
    settings = with_password_file(settings, tmp_path)
    file = config(settings)
    traces = tmp_path / "traces.jsonl"
    traces.write_bytes(b"\n".join([*real_traces[:3], b"garbage", b""]))
    seen = [render(settings)]

    async with secured.rights() as mine:

        async def does(*command, rights_of=()):
            for name in rights_of or (command[0],):
                await mine.grant(*granted_by_script(name, settings))
                await reported(settings, list(DECLARED[name](settings)), [])
            status, output, errors = await kp_worker(*command, "--config", file, KP_LOG__LEVEL="DEBUG")
            assert status == 0, output + errors
            seen.append(output + errors)
            return output

        await does("topics", "--partitions", "1")
        await mine.revoke(*granted_by_script("topics", settings))
        await does("publish", str(traces))
        await mine.revoke(*granted_by_script("publish", settings))

        await mine.grant(*granted_by_script("run", settings))
        await reported(settings, list(DECLARED["run"](settings)), [])
        stream = Stream(settings, tmp_path)
        debug = stream.configured(log={"level": "DEBUG"})
        async with stream.worker(debug, module="support.read_only") as worker:
            await worker.published(4)
            # Neither is logged, nor answered by an error of the server's.
            assert await raw_request(worker, b"no http at all\r\n\r\n") == b"HTTP/1.0 400 Bad Request"
            bad_host = b"GET /metrics HTTP/1.1\r\nHost: localhost:evil\r\nConnection: close\r\n\r\n"
            assert await raw_request(worker, bad_host) == b"HTTP/1.1 200 OK"
            pages = ("/", "/metrics", "/api/status", "/readyz")
            seen += [(await worker.get(path, Accept="application/openmetrics-text"))[1] for path in pages]
            processes = [psutil.Process(worker.process.pid)]
            processes += processes[0].children(recursive=True)
            seen += [" ".join(process.cmdline()) for process in processes]
            os.killpg(worker.process.pid, signal.SIGHUP)  # as a terminal that closes does
            assert await worker.stop() == 0
            assert "ERROR" not in worker.log()
            seen.append(worker.log())
        await mine.revoke(*granted_by_script("run", settings))

        await does("traces", "list", rights_of=["policy"])
        await does("policy", "history", rights_of=["policy"])
        await mine.revoke(*granted_by_script("policy", settings))
        await does("audit")
        await mine.revoke(*granted_by_script("audit", settings))
        assert "not_json" in await does("dead-letters", "list")
        replayed = await does("dead-letters", "replay", rights_of=["replay"])
        assert f"replayed to {settings.topics.raw}/0/4" in replayed

    assert PASSWORD not in "\n".join(seen)


async def test_spans_become_traces_and_scores_go_back_with_the_least_rights(
    settings, secured, tmp_path, real_traces
):
    """Also those that only the broker can check: on transactional ids, and to create topics."""
    group = settings.kafka.group
    stream = Stream(with_password_file(settings, tmp_path), tmp_path)
    stream.settings = stream.configured(
        topics={"evaluations": f"{group}-otlp", "evaluation_spans": f"{group}-otlp-spans"},
        assemble={"spans": f"{group}-spans", "late": f"{group}-late", "grace": 0.5},
    )
    everything = Stream(anonymous(secured, stream.settings), tmp_path)
    await everything.create_topics(1)
    async with TopicAdmin(everything.settings.kafka, everything.settings.topics) as admin:
        await admin.create(stream.settings.assemble.spans, 1, 1, {})
    fleet = Fleet(real_traces[:3])
    await write(everything, fleet.groups[0])
    topics = stream.settings.topics

    async def does(command, begun, output):
        """Run a command until each trace has a record in a topic, which it may have created."""
        async with secured.rights() as mine:
            granted = granted_by_script(command, stream.settings)
            await mine.grant(*granted)
            await reported(stream.settings, list(DECLARED[command](stream.settings)), [])
            async with stream.worker(command=command) as process, asyncio.timeout(120):
                await process.logged(begun)
                while len(await everything.read(*output)) < len(fleet.expected):
                    assert process.process.returncode is None, process.log()
                    await asyncio.sleep(0.1)
                assert await process.stop() == 0, process.log()

    await does("assemble", "assembling", [topics.raw])
    await does("run", "owns 1 of 1 partitions", [topics.contribute, topics.rejected])
    await does("evaluations", "sending the scores", evaluation_topics(stream.settings))

    assert {
        record.key.decode(): record.value for record in await everything.read(topics.raw)
    } == fleet.expected


def with_password_file(settings, folder):
    """The same with the password in a file, as files of settings do not have it."""
    file = folder / "password"
    file.write_text(f"{PASSWORD}\n")
    kafka = settings.kafka.model_copy(update={"sasl_password": None, "sasl_password_file": file})
    return settings.model_copy(update={"kafka": kafka})


async def raw_request(worker, request):
    """Send bytes to the worker's port; returns the first line of the answer."""
    reader, writer = await asyncio.open_connection(worker.settings.web.host, worker.settings.web.port)
    try:
        writer.write(request)
        return (await reader.readline()).strip()
    finally:
        writer.close()
        await writer.wait_closed()
