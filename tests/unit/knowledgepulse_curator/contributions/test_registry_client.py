"""What a registry answers: the same of the tests' own and of a real one, if ``REGISTRY_URL`` names it."""

from __future__ import annotations

import asyncio
import os
import uuid
from contextlib import nullcontext

import pytest
from aiohttp import web
from pydantic import SecretStr

from knowledgepulse_curator.contributions.knowledge_unit import KnowledgeUnit, unit_of
from knowledgepulse_curator.contributions.registry_client import (
    RegistryAnswer,
    RegistryClient,
    require_access,
)
from knowledgepulse_worker.errors import AccessError, InputError, SettingsError
from knowledgepulse_worker.settings import RegistrySettings
from knowledgepulse_worker.tools.common.retries import NoAnswerError
from knowledgepulse_worker.tools.common.scored_records import read_scored_record
from knowledgepulse_worker.tools.demo.processes import free_ports
from support.registry import Registry, register, serving

REAL = os.environ.get("REGISTRY_URL")


@pytest.fixture(params=["fake", *(["real"] if REAL else [])])
async def url(request):
    async with serving(Registry()) if request.param == "fake" else nullcontext(REAL) as address:
        yield address


@pytest.fixture
async def registry(url):
    agent = f"kp:agent:{uuid.uuid4()}"
    return RegistrySettings(url=url, agent_id=agent, api_key=await register(url, agent))


async def no_sleep(_seconds):
    """The bucket is full, and the tests ask for less."""


def unit_in(record, registry):
    unit = unit_of(record.value, read_scored_record(record), registry)
    assert isinstance(unit, KnowledgeUnit)
    return unit


async def test_a_trace_is_there_once_it_is_accepted_and_gone_once_it_is_deleted(registry, document, record):
    unit = unit_in(record(document()), registry)
    async with RegistryClient(registry, no_sleep) as client:
        await client.check()
        assert not await client.has(unit.id)
        assert not await client.delete(unit.id)
        assert await client.contribute(unit) == RegistryAnswer("accepted", 201)
        assert await client.has(unit.id)
        assert await client.delete(unit.id)
        assert not await client.has(unit.id)


async def test_access_to_a_registry_takes_the_agent_s_own_key_and_no_sleep(registry, monkeypatch):
    with monkeypatch.context() as sleepless:
        sleepless.setattr(asyncio, "sleep", None)
        await require_access(registry)
    for changed, problem in [
        ({"agent_id": "kp:agent:other"}, "the key belongs to another agent"),
        ({"api_key": SecretStr("kp_unknown")}, "does not know the key"),
        ({"api_key": None}, r"^registry\.api_key or registry\.api_key_file: is not set$"),
    ]:
        with pytest.raises((AccessError, SettingsError), match=problem):
            await require_access(registry.model_copy(update=changed))


async def test_access_to_a_registry_takes_an_answer():
    (port,) = free_ports(1)
    away = RegistrySettings(url=f"http://127.0.0.1:{port}", agent_id="a", api_key="k")
    with pytest.raises(InputError, match=rf"^registry\.url: http://127\.0\.0\.1:{port}: unreachable: "):
        await require_access(away)


async def test_what_the_schema_refuses_is_refused_with_the_registrys_words(registry, document, record):
    unit = unit_in(record(document()), registry)
    broken = KnowledgeUnit(unit.id, unit.body.replace(b'"created_at":"', b'"created_at":"later than '))
    broken = KnowledgeUnit(unit.id, broken.body.replace(b'Z","task', b'","task'))
    async with RegistryClient(registry, no_sleep) as client:
        answer = await client.contribute(broken)
        assert (answer.verdict, answer.status) == ("refused", 400)
        assert answer.message.startswith("Invalid KnowledgeUnit; metadata.created_at: Invalid")
        assert not await client.has(unit.id)


@pytest.mark.parametrize("issues", [5, {"path": "x"}, "none", [7], [{"path": {}, "message": [1]}], None])
async def test_a_refusal_of_another_form_is_a_refusal(document, record, issues):
    async def refuse(_request):
        return web.json_response({"error": ["Invalid"], "issues": issues}, status=400)

    own = Registry()
    own.script.append(refuse)
    async with serving(own) as url:
        settings = RegistrySettings(url=url, agent_id="a", api_key=await register(url, "a"))
        async with RegistryClient(settings, no_sleep) as client:
            answer = await client.contribute(unit_in(record(document()), settings))
    assert (answer.verdict, answer.message[:11]) == ("refused", "['Invalid']")


async def test_a_key_that_is_not_known_and_an_agent_that_is_another_are_told(registry, document, record):
    unit = unit_in(record(document()), registry)
    unknown = registry.model_copy(update={"api_key": None, "api_key_file": None})
    unknown = RegistrySettings(**{**unknown.model_dump(), "api_key": f"kp_{'f' * 64}"})
    async with RegistryClient(unknown, no_sleep) as client:
        with pytest.raises(AccessError, match="does not know the key"):
            await client.check()
        with pytest.raises(AccessError, match="does not know the key"):
            await client.contribute(unit)  # a limit of 0 is how it says so
    other = registry.model_copy(update={"agent_id": "kp:agent:another"})
    async with RegistryClient(other, no_sleep) as client:
        with pytest.raises(AccessError, match=r"belongs to another agent than registry\.agent_id"):
            await client.check()
    nowhere = registry.model_copy(update={"url": f"{registry.url}/nowhere"})
    async with RegistryClient(nowhere, no_sleep) as client:
        with pytest.raises(SettingsError, match=r"registry\.url: .* with status 404"):
            await client.check()


async def test_the_limits_are_honoured_before_they_are_hit(url, document, record):
    """The registry's bucket has 30 tokens; the sleeps pass at once, so that it does not fill up."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    agent = f"kp:agent:{uuid.uuid4()}"
    registry = RegistrySettings(url=url, agent_id=agent, api_key=await register(url, agent, "free"))
    async with RegistryClient(registry, sleep) as client:
        for _ in range(20):
            await client.contribute(unit_in(record(document()), registry))
    assert len(slept) == 20
    assert min(slept) > 1.5  # of 2 s, from which the time of the request is taken
    assert slept[-1] > slept[10]  # nothing came back meanwhile, so others are asking, too

    async with RegistryClient(registry, no_sleep) as client:
        requests = [client.contribute(unit_in(record(document()), registry)) for _ in range(12)]
        with pytest.raises(NoAnswerError) as limited:
            await asyncio.gather(*requests)
    assert (limited.value.reason, limited.value.seconds >= 1) == ("limited", True)


@pytest.mark.parametrize(
    ("unset", "told"),
    [
        ("url", "registry.url: is not set"),
        ("agent_id", "registry.agent_id: is not set"),
        ("api_key", "registry.api_key or registry.api_key_file: is not set"),
    ],
)
def test_what_is_not_set_is_named(unset, told):
    full = {"url": "http://localhost:1", "agent_id": "a", "api_key": "kp_1"}
    settings = RegistrySettings(**{name: value for name, value in full.items() if name != unset})
    with pytest.raises(SettingsError, match=f"^{told}$"):
        RegistryClient(settings, asyncio.sleep)
