"""Small backends of traces for tests, which answer like Phoenix, MLflow, Langfuse and LangSmith.

Those of Phoenix and MLflow answer as the servers do that ``make check NAME=backends`` starts. Those of
Langfuse and LangSmith read requests and write answers with the types of ``langfuse`` and ``langsmith``.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from aiohttp import web
from langsmith.schemas import FeedbackCreate, Run

from support.served import served

PAGE = 2
START = datetime(2026, 3, 25, 9, tzinfo=UTC)
SCORE = "knowledgepulse.quality_score"


@dataclass
class AgentRun:
    """A run: a question of the user and the agent's answer.

    Attributes:
        number: the minutes after :data:`START` at which it starts; it takes ten seconds.
        judgements: the scores that people gave it, by name.
    """

    number: int
    ended: bool = True
    agent: str = "helper"
    judgements: dict = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid4().hex)

    @property
    def started(self):
        return START + timedelta(minutes=self.number)

    @property
    def stopped(self):
        return self.started + timedelta(seconds=10)

    @property
    def objective(self):
        return f"What is the weather in town {self.number}?"

    @property
    def answer(self):
        return f"In town {self.number} it is sunny."


class FakeBackend:
    """A backend's state.

    Attributes:
        runs: the runs.
        scores: the scores by run and by their key: value, label, explanation, details.
        script: answers that replace the next ones; each is used once.
        headers: the headers of the last request.
        writes: the number of scores that were written.
        is_down: whether every request is answered with status 503.
    """

    name = ""

    def __init__(self):
        self.runs: list[AgentRun] = []
        self.scores: dict[str, dict[str, tuple]] = {}
        self.script: deque[web.Response] = deque()
        self.headers: dict[str, str] = {}
        self.writes = 0
        self.is_down = False

    def run_id(self, run):
        return run.id

    def find(self, run_id):
        return next((run for run in self.runs if self.run_id(run) == run_id), None)

    def since(self, moment):
        return sorted((run for run in self.runs if run.started >= moment), key=lambda run: run.started)

    def put(self, run_id, key, *score):
        self.writes += 1
        self.scores.setdefault(run_id, {})[key] = score

    @web.middleware
    async def scripted(self, request, handler):
        self.headers = dict(request.headers)
        if self.is_down:
            return web.Response(status=503)
        return self.script.popleft() if self.script else await handler(request)

    def served(self):
        """Serve the backend, and yield its address."""
        app = web.Application(middlewares=[self.scripted])
        self.route(app.router)
        return served(app)


def page_of(items, cursor):
    """Return a page and the cursor of the next one, or None."""
    start = int(cursor or 0)
    following = start + PAGE
    return items[start:following], str(following) if following < len(items) else None


def nanoseconds(moment):
    return int(moment.timestamp() * 10**9)


def span_of(run, encode):
    """Return the run's only span in OTLP JSON with snake case, as both servers write it."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": run.agent,
        "gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": run.objective}]}]
        ),
        "gen_ai.output.messages": json.dumps(
            [
                {
                    "role": "assistant",
                    "parts": [{"type": "text", "content": run.answer}],
                    "finish_reason": "stop",
                }
            ]
        ),
    }
    return {
        "trace_id": encode(run.id),
        "span_id": encode(run.id[:16]),
        **({} if run.ended else {"parent_span_id": encode("f" * 16)}),
        "name": "chat",
        "start_time_unix_nano": nanoseconds(run.started),
        "end_time_unix_nano": nanoseconds(run.stopped),
        "attributes": [{"key": name, "value": {"string_value": value}} for name, value in attributes.items()],
        "status": {},
    }


class FakePhoenix(FakeBackend):
    name = "phoenix"

    def route(self, router):
        router.add_get("/v1/projects/default/traces", self._traces)
        router.add_get("/v1/projects/default/spans/otlpv1", self._spans)
        router.add_get("/v1/projects/default/trace_annotations", self._annotations)
        router.add_post("/v1/trace_annotations", self._annotate)

    async def _traces(self, request):
        query = request.query
        assert (query["sort"], query["order"]) == ("start_time", "asc")
        since = datetime.fromisoformat(query.get("start_time", START.isoformat()))
        page, cursor = page_of(self.since(since), query.get("cursor"))
        data = [{"trace_id": row.id, "start_time": row.started.isoformat()} for row in page]
        return web.json_response({"data": data, "next_cursor": cursor})

    async def _spans(self, request):
        spans = [span_of(self.find(trace_id), str) for trace_id in request.query.getall("trace_id")]
        for span in spans:
            for pair in span["attributes"]:
                pair["value"] = {"array_value": None, "bool_value": None, **pair["value"]}
        page, cursor = page_of(spans, request.query.get("cursor"))
        return web.json_response({"data": page, "next_cursor": cursor})

    async def _annotations(self, request):
        names = request.query.getall("include_annotation_names")
        data = [
            {"trace_id": run, "name": name, "result": {"score": value}}
            for run in request.query.getall("trace_ids")
            for name, value in self.find(run).judgements.items()
            if name in names
        ]
        return web.json_response({"data": data, "next_cursor": None})

    async def _annotate(self, request):
        data = (await request.json())["data"]
        assert request.query["sync"] == "true"
        missing = [annotation["trace_id"] for annotation in data if self.find(annotation["trace_id"]) is None]
        if missing:
            return web.Response(status=404, text=f"Traces with IDs {', '.join(missing)} do not exist.")
        for trace in data:
            key, result = f"{trace['name']} {trace['identifier']}", trace["result"]
            said = result["score"], result["label"], result["explanation"], trace["metadata"]
            self.put(trace["trace_id"], key, *said)
        return web.json_response({"data": [{"id": "x"} for _ in data]})


class FakeMLflow(FakeBackend):
    name = "mlflow"

    def run_id(self, run):
        return f"tr-{run.id}"

    def route(self, router):
        router.add_get("/api/2.0/mlflow/experiments/get-by-name", self._experiment)
        router.add_post("/api/3.0/mlflow/traces/search", self._search)
        router.add_get("/api/3.0/mlflow/traces/batchGet", self._traces)
        router.add_get("/api/3.0/mlflow/traces/{id}", self._trace)
        router.add_post("/api/3.0/mlflow/traces/{id}/assessments", self._assess)
        router.add_patch("/api/3.0/mlflow/traces/{id}/assessments/{assessment}", self._assess)

    async def _experiment(self, request):
        assert request.query["experiment_name"] == "Default"
        return web.json_response({"experiment": {"experiment_id": "0"}})

    async def _search(self, request):
        asked = await request.json()
        assert asked["locations"][0]["mlflow_experiment"] == {"experiment_id": "0"}
        since = datetime.fromtimestamp(
            int(asked["filter"].removeprefix("trace.timestamp_ms >= ")) / 1000, UTC
        )
        page, token = page_of(self.since(since), asked.get("page_token"))
        answer = {"traces": [self._info(row) for row in page]} if page else {}
        return web.json_response(answer | ({"next_page_token": token} if token else {}))

    def _info(self, run):
        assessments = [
            {"assessment_id": key, "assessment_name": SCORE, "feedback": {"value": value},
             "rationale": rationale, "metadata": metadata}
            for key, (value, _label, rationale, metadata) in self.scores.get(self.run_id(run), {}).items()
        ]  # fmt: skip
        assessments += [
            {"assessment_name": name, "feedback": {"value": value}} for name, value in run.judgements.items()
        ]
        return {
            "trace_id": self.run_id(run),
            "request_time": run.started.isoformat().replace("+00:00", "Z"),
            "state": "OK" if run.ended else "IN_PROGRESS",
            "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}},
            **({"assessments": assessments} if assessments else {}),
        }

    async def _traces(self, request):
        found = map(self.find, request.query.getall("trace_ids"))
        encode = lambda text: base64.b64encode(bytes.fromhex(text)).decode()  # noqa: E731
        traces = [{"trace_info": self._info(run), "spans": [span_of(run, encode)]} for run in found]
        return web.json_response({"traces": traces})

    async def _trace(self, request):
        run = self.find(request.match_info["id"])
        if run is None:
            return web.json_response({"error_code": "RESOURCE_DOES_NOT_EXIST"}, status=404)
        return web.json_response({"trace": {"trace_info": self._info(run)}})

    async def _assess(self, request):
        assessment = (await request.json())["assessment"]
        key = request.match_info.get("assessment", f"a-{uuid4().hex}")
        said = (
            assessment["feedback"]["value"],
            assessment["metadata"]["kp.label"],
            assessment["rationale"],
            assessment["metadata"],
        )
        self.put(request.match_info["id"], key, *said)
        return web.json_response({"assessment": assessment})


def dumped(model):
    """Return a model of Langfuse as its server writes it."""
    return json.loads(model.json()) if hasattr(model, "json") else model


class FakeLangfuse(FakeBackend):
    name = "langfuse"

    def route(self, router):
        router.add_get("/api/public/v2/observations", self._observations)
        router.add_get("/api/public/v3/scores", self._list)
        router.add_post("/api/public/scores", self._score)

    async def _observations(self, request):
        query = request.query
        if "traceId" in query:
            found = [self.find(query["traceId"])]
            assert "io" in query["fields"]
        else:
            assert query["isRootObservation"] == "true"
            since = query.get("fromStartTime", START.isoformat())
            found = self.since(datetime.fromisoformat(since))[::-1]
        from langfuse.api.commons.types.observation_v2 import ObservationV2  # not as tests are collected

        observations = [
            dumped(
                ObservationV2(
                    id=run.id[:16], trace_id=run.id, start_time=run.started,
                    end_time=run.stopped if run.ended else None, project_id="p", type="AGENT",
                    is_root_observation=True, name=run.agent,
                    input=[{"role": "user", "content": run.objective}], output=run.answer,
                )
            )
            for run in found
        ]  # fmt: skip
        page, cursor = page_of(observations, query.get("cursor"))
        return web.json_response({"data": page, "meta": {"cursor": cursor} if cursor else {}})

    async def _list(self, request):
        from langfuse.api.scores.types.score_v3 import ScoreV3_Numeric

        run = self.find(request.query["traceId"])
        scores = [
            dumped(
                ScoreV3_Numeric(
                    value=value, id=name, project_id="p", name=name, source="API", timestamp=run.stopped,
                    environment="default", created_at=run.stopped, updated_at=run.stopped,
                    subject={"kind": "trace", "id": run.id},
                )
            )
            for name, value in run.judgements.items()
        ]  # fmt: skip
        return web.json_response({"data": scores, "meta": {"limit": 100}})

    async def _score(self, request):
        from langfuse.api.core.pydantic_utilities import parse_obj_as
        from langfuse.api.scores.types.create_score_request import CreateScoreRequest

        errors = []
        data = await request.json()
        for sent in data:
            score = parse_obj_as(CreateScoreRequest, sent)
            assert not score.model_extra, score.model_extra
            if self.find(score.trace_id) is None:
                errors.append({"message": f"no trace {score.trace_id}"})
                continue
            label = score.metadata["label"]
            self.put(
                score.trace_id,
                f"{score.id} {score.timestamp}",
                score.value,
                label,
                score.comment,
                score.metadata,
            )
        if errors:
            return web.json_response(
                {"accepted": len(data) - len(errors), "rejected": len(errors), "errors": errors}, status=207
            )
        return web.json_response({"message": "Accepted"}, status=202)


class FakeLangSmith(FakeBackend):
    name = "langsmith"
    session = str(uuid4())

    def run_id(self, run):
        return str(UUID(run.id))

    def route(self, router):
        router.add_get("/sessions", self._sessions)
        router.add_post("/runs/query", self._query)
        router.add_post("/feedback", self._create)
        router.add_patch("/feedback/{id}", self._update)

    async def _sessions(self, request):
        found = [{"id": self.session, "name": "default"}] if request.query["name"] == "default" else []
        return web.json_response(found)

    async def _query(self, request):
        asked = await request.json()
        assert asked["session"] == [self.session]
        since = datetime.fromisoformat(asked.get("start_time", START.isoformat()))
        found = [self.find(asked["trace"])] if "trace" in asked else self.since(since)
        runs = []
        for agent_run in found:
            run = Run(
                id=UUID(agent_run.id), trace_id=UUID(agent_run.id), name=agent_run.agent, run_type="chain",
                start_time=agent_run.started, end_time=agent_run.stopped if agent_run.ended else None,
                inputs={"input": agent_run.objective}, outputs={"output": agent_run.answer},
                session_id=UUID(self.session),
                feedback_stats={name: {"n": 1, "avg": value} for name, value in agent_run.judgements.items()},
            )  # fmt: skip
            whole = run.model_dump(mode="json", exclude_none=True)
            runs.append({name: whole[name] for name in asked["select"] if name in whole})
        page, cursor = page_of(runs, asked.get("cursor"))
        return web.json_response({"runs": page, "cursors": {"next": cursor}})

    async def _create(self, request):
        sent = await request.json()
        feedback = FeedbackCreate.model_validate(sent)
        assert sent.keys() <= FeedbackCreate.model_fields.keys()
        run = str(feedback.trace_id)
        if self.find(run) is None:
            return web.json_response({"detail": "Run not found"}, status=404)
        if str(feedback.id) in self.scores.get(run, {}):
            return web.json_response({"detail": "exists"}, status=409)
        self.put(
            run,
            str(feedback.id),
            feedback.score,
            feedback.value,
            feedback.comment,
            feedback.feedback_source.metadata,
        )
        return web.json_response({})

    async def _update(self, request):
        sent, name = await request.json(), request.match_info["id"]
        run = next(run for run, scores in self.scores.items() if name in scores)
        details = self.scores[run][name][3]
        self.put(run, name, sent["score"], sent["value"], sent["comment"], details)
        return web.json_response({})


FAKES = (FakePhoenix, FakeMLflow, FakeLangfuse, FakeLangSmith)
