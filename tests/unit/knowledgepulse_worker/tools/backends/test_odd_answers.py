"""What backends answer and what producers write may be odd: a command ends with a sentence or goes on."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from knowledgepulse_convert import Options
from knowledgepulse_kafka import http_client
from knowledgepulse_kafka.http_client import HttpAnswer
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.tools.backends import pages
from knowledgepulse_worker.tools.backends.all_backends import BACKENDS, connected
from knowledgepulse_worker.tools.backends.backend import RunScore
from knowledgepulse_worker.tools.backends.pull_runs import Pull, PullRules
from knowledgepulse_worker.tools.backends.pull_state import PullState
from knowledgepulse_worker.tools.backends.read_runs import RunReader
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport
from knowledgepulse_worker.tools.evaluations.backend_scores import write_scores
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics
from support.backends import FAKES, START, AgentRun, FakeLangfuse, FakeMLflow, FakePhoenix
from support.mutations import Raw, mutated
from support.scored import published
from support.traces import made

NOW = int(START.timestamp() * 1000) + 3_600_000
MAX_REQUESTS = 2000  # a mutation may repeat each of six rows 300 times


class AwayError(Exception):
    """The command waits for the backend."""


@pytest.fixture(params=FAKES, ids=lambda fake: fake.name)
def fake(request, monkeypatch):
    for variable in BACKENDS[request.param.name].variables[0]:
        monkeypatch.setenv(variable, "hidden")
    return request.param()


async def away(seconds, problem):
    raise AwayError(str(problem))


def scores(fake, number=3):
    return [
        RunScore(fake.run_id(run), f"kp:trace:{run.number}", 0.5, "rejected", "novelty 0.5", NOW, {})
        for run in fake.runs[:number]
    ]


@asynccontextmanager
async def backend_of(fake, url, **options):
    async with connected(fake.name, url, "default", wait=away, **options) as backend:
        yield backend


async def pulled(backend, state=None):
    """Pull once; return the objectives of the traces, and what was said of runs."""
    traces, told = [], []
    state = state or PullState(None, "x")
    pulling = Pull(
        backend, state, PullRules(Options()), ConversionReport(), lambda *said: told.append(said), NOW
    )
    async for page in pulling.pages():
        traces += [trace.task.objective for trace in page.traces]
        state.take(page.listings, 0)
    state.finish(pulling.next_since_ms)
    return traces, told


def text_of(value):
    """Return JSON, with the tokens of mutations as they are."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{text_of(member)}" for name, member in value.items()) + "}"
    return f"[{','.join(map(text_of, value))}]" if isinstance(value, list) else json.dumps(value)


class Recorded:
    """A backend's answers, which are given again; one of them in an odd form.

    Attributes:
        answers: the answers by method and path, in their order.
        odd: the number of the answer that is odd, and its body.
    """

    def __init__(self, answers):
        self.answers, self.odd = answers, None

    def begin(self, odd):
        self.odd, self._given, self._asked = odd, Counter(), 0

    async def request(self, session, method, url, **_):
        self._asked += 1
        assert self._asked < MAX_REQUESTS, "it asks without end"
        key = method, url.raw_path
        known = self.answers.get(key)
        if known is None:
            return HttpAnswer(404, {}, "application/json", b"{}")
        number = min(self._given[key], len(known) - 1)
        self._given[key] += 1
        body = self.odd[1] if self.odd and self.odd[0] == (key, number) else known[number]
        return HttpAnswer(200, {}, "application/json", body)


@pytest.fixture(scope="module")
def recorded():
    """Return the answers of each backend to a pull of three runs, and to their scores."""
    found = {}

    async def record(fake):
        answers = {}

        async def request(session, method, url, **content):
            answer = await original(session, method, url, **content)
            answers.setdefault((method, url.raw_path), []).append(answer.body)
            return answer

        original, http_client.request = http_client.request, request
        try:
            async with fake.served() as url, backend_of(fake, url) as backend:
                traces, _ = await pulled(backend)
                assert len(traces) == 3
                for _ in range(2):
                    assert await backend.send(scores(fake)) == []
        finally:
            http_client.request = original
        found[fake.name] = fake, answers

    with pytest.MonkeyPatch.context() as patch:
        for kind in FAKES:
            for variable in BACKENDS[kind.name].variables[0]:
                patch.setenv(variable, "hidden")
            fake = kind()
            fake.runs = [AgentRun(number, judgements={"success": 1}) for number in range(3)]
            asyncio.run(record(fake))
    return found


@pytest.mark.parametrize("name", sorted(BACKENDS))
@settings(max_examples=200)
@given(seed=st.integers(0, 2**32))
@pytest.mark.slow
def test_each_answer_of_a_backend_may_be_odd(recorded, name, seed):
    """A pull ends with traces or an error of ours; scores are sent, refused, or wait for the backend."""
    fake, answers = recorded[name]
    replay, random_ = Recorded(answers), random.Random(seed)
    key = random_.choice(sorted(answers))
    number = random_.randrange(len(answers[key]))
    body = text_of(mutated(random_, json.loads(answers[key][number]))).encode(errors="replace")
    odd = (
        (key, number),
        body if random_.random() < 0.9 else random_.choice([b"", b"<html>", b"\xff\xfe", b"{"]),
    )

    async def use():
        replay.begin(odd)
        async with backend_of(fake, "http://localhost:1") as backend:
            try:
                traces, told = await pulled(backend)
                assert len(traces) <= 6 * 300
                assert len({said[0] for said in told if said[0] in map(fake.run_id, fake.runs)}) <= 3
            except (InputError, AwayError):
                pass
        replay.begin(odd)
        async with backend_of(fake, "http://localhost:1", patience=None) as backend:
            with suppress(InputError, AwayError):
                await backend.send(scores(fake))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_client, "request", replay.request)
        for variable in BACKENDS[name].variables[0]:
            patch.setenv(variable, "hidden")
        asyncio.run(use())


def answers(body, **headers):
    return web.Response(text=body, content_type="application/json", headers=headers)


async def test_another_service_at_the_address_is_named(fake):
    fake.script += [answers('"ok"') for _ in range(9)]
    async with fake.served() as url, backend_of(fake, url) as backend:
        with pytest.raises(InputError) as raised:
            await pulled(backend)
    title = BACKENDS[fake.name].words.title
    assert str(raised.value).startswith(f"{url}: answers ")
    assert f"in an unknown form; is it {title}? Expected `" in str(raised.value)


async def test_scores_wait_for_a_backend_that_answers_in_an_unknown_form(fake):
    """It may be a proxy that shows a page of its own, also by a redirect: no score is refused for that."""
    fake.runs = [AgentRun(0)]
    for odd in (answers("<html>"), web.Response(status=302, headers={"Location": "http://login"})):
        fake.script.append(odd)
        async with fake.served() as url, backend_of(fake, url, patience=None) as backend:
            with pytest.raises(AwayError, match="unknown form"):
                await backend.send(scores(fake))


@pytest.mark.parametrize("odd", [answers("[]"), web.Response(status=422), web.Response(status=500)])
async def test_a_run_that_cannot_be_read_is_named_and_passed_over_once(fake, odd, monkeypatch):
    fake.runs = [AgentRun(number) for number in range(3)]
    state, original = PullState(None, "x"), fake.find

    def find(run_id):
        run = original(run_id)
        if run is fake.runs[1]:
            raise OddRunError
        return run

    @web.middleware
    async def middle(request, handler):
        try:
            return await handler(request)
        except OddRunError:
            return web.Response(status=odd.status, text=odd.text, content_type="application/json")

    monkeypatch.setattr(fake, "find", find)
    monkeypatch.setattr(fake, "scripted", middle)
    async with fake.served() as url, backend_of(fake, url) as backend:
        traces, told = await pulled(backend, state)
        again = await pulled(backend, state)
    assert sorted(traces) == [fake.runs[0].objective, fake.runs[2].objective]
    assert [run for run, _ in told] == [fake.run_id(fake.runs[1])]
    assert again == ([], [])


class OddRunError(Exception):
    """The backend cannot answer for a run."""


async def test_a_backend_that_refuses_to_return_any_run_loses_none(fake):
    """That is not the runs' fault: the next pull reads them."""
    fake.runs, state = [AgentRun(0)], PullState(None, "x")
    async with fake.served() as url, backend_of(fake, url) as backend:
        listed = [page async for page in backend.runs(None)]
        fake.script += [web.Response(status=404, text="no such page") for _ in range(9)]
        with pytest.raises(InputError, match="status 404: no such page"):
            _ = [found async for found in RunReader(backend).read(listed[0])]
        fake.script.clear()
        assert await pulled(backend, state) == ([fake.runs[0].objective], [])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (None, "a run of the list: has an unknown form: Expected `object`, got `null`"),
        (
            {"trace_id": "\ud800", "start_time": "2026-01-31T12:00"},
            "a run of the list: \\ud800 is no id of a run",
        ),
        ({"trace_id": "a" * 32, "start_time": "yesterday"}, f"{'a' * 32}: its start is no time: yesterday"),
    ],
)
async def test_a_run_without_a_place_in_the_list_is_named_and_the_others_are_pulled(row, said):
    fake = FakePhoenix()
    fake.runs, state = [AgentRun(0)], PullState(None, "x")
    good = {"trace_id": fake.runs[0].id, "start_time": START.isoformat()}
    async with fake.served() as url, backend_of(fake, url) as backend:
        fake.script.append(answers(json.dumps({"data": [row, good], "next_cursor": None})))
        traces, told = await pulled(backend, state)
    assert traces == [fake.runs[0].objective]
    assert [": ".join(line) for line in told] == [said]


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_a_run_at_the_ends_of_time_hides_no_later_run(start):
    fake = FakePhoenix()
    fake.runs, state = [AgentRun(0)], PullState(None, "x")
    odd = {"trace_id": fake.runs[0].id, "start_time": start}
    async with fake.served() as url, backend_of(fake, url) as backend:
        fake.script.append(answers(json.dumps({"data": [odd], "next_cursor": None})))
        await pulled(backend, state)
        fake.runs.append(AgentRun(1))
        traces, _ = await pulled(backend, state)
    assert traces == [fake.runs[1].objective]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (lambda number: {"data": [], "next_cursor": "same"}, "page 2 has the cursor of an earlier one"),
        (
            lambda number: {"data": [], "next_cursor": str(number)},
            "page 10 is the tenth empty one in a row",
        ),
    ],
)
async def test_pages_without_an_end_are_an_error(page, said):
    fake = FakePhoenix()
    fake.script += [answers(json.dumps(page(number))) for number in range(20)]
    async with fake.served() as url, backend_of(fake, url) as backend:
        with pytest.raises(InputError, match=said):
            await pulled(backend)


@pytest.mark.parametrize("bound", ["MAX_SPANS", "MAX_BYTES"])
async def test_a_run_of_endless_spans_is_passed_over(monkeypatch, bound):
    monkeypatch.setattr(pages, bound, {"MAX_SPANS": 50, "MAX_BYTES": 2**20}[bound])
    fake = FakePhoenix()
    fake.runs, endless = [AgentRun(0), AgentRun(1)], count()

    async def spans(request):
        if fake.runs[1].id not in request.query.getall("trace_id"):
            return await fake.__class__._spans(fake, request)
        span = {"trace_id": fake.runs[1].id, "name": "x" * (1 if bound == "MAX_SPANS" else 100_000)}
        return web.json_response({"data": [span], "next_cursor": str(next(endless))})

    monkeypatch.setattr(fake, "_spans", spans)
    async with fake.served() as url, backend_of(fake, url) as backend:
        traces, told = await pulled(backend)
    assert traces == [fake.runs[0].objective]
    (line,) = told
    assert line[0] == fake.runs[1].id
    assert line[1] in ("has more than 50 spans", "has more than 1 MiB")


async def test_a_page_that_is_too_large_is_asked_for_in_smaller_ones(monkeypatch):
    fake, asked = FakeLangfuse(), []
    for variable in BACKENDS[fake.name].variables[0]:
        monkeypatch.setenv(variable, "hidden")

    async def observations(request):
        asked.append(int(request.query["limit"]))
        rows = [{"id": "x", "startTime": START.isoformat(), "input": "x" * 1000}] * asked[-1]
        return web.json_response({"data": rows})

    monkeypatch.setattr(fake, "_observations", observations)
    async with fake.served() as url, backend_of(fake, url, max_bytes=100_000) as backend:
        listed = [run async for page in backend.runs(None) for run in page]
    assert (len(listed), asked) == (1, [1000, 250, 62])
    async with fake.served() as url, backend_of(fake, url, max_bytes=1000) as backend:
        with pytest.raises(InputError, match=r"with more than 0\.0009"):
            _ = [page async for page in backend.runs(None)]


@pytest.mark.slow
async def test_a_compressed_page_counts_by_what_it_becomes():
    fake = FakePhoenix()
    body = gzip.compress(b'{"data":[' + b"0," * 20_000_000 + b"0]}", 1)
    head = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    fake.script += [web.Response(body=body, headers=head) for _ in range(9)]
    async with fake.served() as url, backend_of(fake, url) as backend:
        with pytest.raises(InputError, match="answers GET /v1/projects/default/traces with more than 16 MiB"):
            await pulled(backend)


ODD_TEXTS = [
    *("\ud800", "..", "../../2.0/mlflow/experiments/delete", "", "a\0b", "x" * 100_000, "\u202e", "é?#%2F"),
    "a\r\nX-Evil: 1",
]
ODD_TIMES = ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "0001-01-01"]


@pytest.mark.parametrize("member", ["run", "trace_id", "explanation", "label", "details"])
async def test_an_odd_text_of_a_score_costs_the_others_nothing(fake, member):
    fake.runs = [AgentRun(0), AgentRun(1)]
    first, second = scores(fake)
    odd = [replace(first, **{member: {"kp.x": text} if member == "details" else text}) for text in ODD_TEXTS]
    async with fake.served() as url, backend_of(fake, url, patience=None) as backend:
        refusals = await backend.send([*odd, second])
    assert second.run in fake.scores
    assert second not in [refusal.score for refusal in refusals]


async def test_one_producer_s_traces_keep_no_other_s_score_from_a_backend(fake, caplog):
    """They ended `evaluations` at each start."""
    fake.runs, metrics = [AgentRun(0), AgentRun(1)], EvaluationMetrics(CollectorRegistry())
    first, second = map(fake.run_id, fake.runs)
    records = [
        *(scored(fake, 0, run, ODD_TIMES[0]) for run in ODD_TEXTS),
        *(scored(fake, 0, first, time) for time in ODD_TIMES),
        scored(fake, 7, first, "yesterday"),
        scored(fake, 0, second, "2026-01-31T12:00:00Z"),
    ]
    async with fake.served() as url, backend_of(fake, url, patience=None) as backend:
        await write_scores(backend, metrics, records)
    counts = metrics.counts()
    assert {run: len(scores) for run, scores in fake.scores.items()} == {first: 3, second: 1}
    assert (counts["sent"], counts["failed"]) == (4, 1)
    assert counts["refused"] + counts["without_span"] == len(ODD_TEXTS)
    assert "raw-traces/0/7: no score could be made: ValueError: Invalid isoformat string" in caplog.text


def scored(fake, offset, run, created_at, **pulled_from):
    """Return a scored record of a run."""
    trace = made()
    document = json.loads(trace.to_json())
    pulled_from = {"backend": fake.name, "run": run, **pulled_from}
    document["metadata"] |= {"created_at": created_at, "pulled_from": pulled_from}
    return published(offset, json.dumps(document).encode(), Scorer().evaluate(trace), Policy())


@pytest.mark.parametrize("named", [{"backend": "other"}, {"project": "other"}])
async def test_a_run_of_another_backend_or_project_gets_no_score(fake, named):
    """A producer writes what it says."""
    fake.runs, metrics = [AgentRun(0)], EvaluationMetrics(CollectorRegistry())
    record = scored(fake, 0, fake.run_id(fake.runs[0]), "2026-01-31T12:00:00Z", **named)
    async with fake.served() as url, backend_of(fake, url) as backend:
        await write_scores(backend, metrics, [record])
    assert (fake.scores, metrics.counts()["without_span"]) == ({}, 1)


async def test_a_run_of_another_experiment_of_mlflow_is_refused(monkeypatch):
    fake, other = FakeMLflow(), {"mlflow_experiment": {"experiment_id": "1"}}
    fake.runs, info = [AgentRun(0)], fake._info
    monkeypatch.setattr(fake, "_info", lambda run: info(run) | {"trace_location": other})
    async with fake.served() as url, backend_of(fake, url) as backend:
        (refusal,) = await backend.send(scores(fake))
    assert (refusal.reason, fake.scores) == ("no such run", {})


async def test_a_fault_of_ours_about_one_score_is_named_and_the_others_are_sent(fake):
    fake.runs = [AgentRun(0), AgentRun(1)]
    first, second = scores(fake)
    odd = replace(first, time_ms="soon", details=7, value=None)
    async with fake.served() as url, backend_of(fake, url, patience=None) as backend:
        refusals = await backend.send([odd, second])
    assert second.run in fake.scores
    assert [(refusal.score, refusal.is_fault) for refusal in refusals] == [(odd, True)]
