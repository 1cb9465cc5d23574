"""Certificates that expire while a worker runs are named, and once they are renewed, it goes on."""

from __future__ import annotations

import datetime

import pytest

from knowledgepulse_kafka.errors import SecurityError
from knowledgepulse_kafka.rights import require_rights
from support.secured import granted_by_script, secured_broker, write_client_certificate
from support.streams import Message, Stream, own_settings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),  # the broker starts three times
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

LIMIT = 120
LONG_AGO = datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker that no other module uses."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture
async def stream(secured, tmp_path):
    """A stream whose worker logs in by a certificate."""
    file = tmp_path / "client.pem"
    write_client_certificate(secured.authority, file)
    own = own_settings("unused:1", "certificates", {"embedding": {"backend": "none"}})
    settings = own.model_copy(
        update={"kafka": secured.settings("SSL", group=own.kafka.group, ssl_certfile=file)}
    )
    operator = own.model_copy(update={"kafka": secured.settings("PLAINTEXT", group=own.kafka.group)})
    await Stream(operator, tmp_path).create_topics(1)
    async with secured.rights() as mine:
        await mine.grant(*granted_by_script("run", settings))
        yield Stream(settings, tmp_path), Stream(operator, tmp_path)


async def test_an_expired_certificate_of_a_broker_is_named(secured, stream, real_traces):
    """Its connections failed for 70 s before anything told why."""
    stream, operator = stream
    async with stream.worker() as worker:
        await worker.owns(1)
        await worker.says("Healthy")
        await secured.start_again(LONG_AGO)
        there = f"127.0.0.1:{secured.ports['SSL']}"
        reason = f"the certificate of {there} is not valid now: certificate has expired"
        await worker.says(f".*connection to {there}: kafka.bootstrap_servers: {reason}")
        assert reason in worker.log()
        with pytest.raises(SecurityError, match=reason):
            await require_rights(stream.settings.kafka.client_config(), [])

        await secured.start_again()
        raw = await operator.publish([Message(trace) for trace in real_traces[:5]])
        await operator.outputs(worker, raw)
        await worker.says("Healthy")


async def test_an_expired_certificate_of_a_worker_is_named(secured, stream, real_traces):
    stream, operator = stream
    file = stream.settings.kafka.ssl_certfile
    async with stream.worker() as worker:
        await worker.owns(1)
        await worker.says("Healthy")
        write_client_certificate(secured.authority, file, not_after=LONG_AGO)
        await secured.start_again()
        there = f"127.0.0.1:{secured.ports['SSL']}"
        reason = f"kafka.ssl_certfile: {file}: {there} refuses the client certificate"
        await worker.says(f".*connection to {there}: {reason}")
        assert reason in worker.log()

        write_client_certificate(secured.authority, file)
        raw = await operator.publish([Message(trace) for trace in real_traces[:5]])
        await operator.outputs(worker, raw)
        await worker.says("Healthy")
