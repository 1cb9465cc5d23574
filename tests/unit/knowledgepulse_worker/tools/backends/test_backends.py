"""What every backend does: runs come in once, whatever happens, and scores go back once."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from aiohttp import web

from knowledgepulse_convert import Options
from knowledgepulse_kafka.errors import SecurityError
from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.backends import backend_client
from knowledgepulse_worker.tools.backends.all_backends import BACKENDS, connected
from knowledgepulse_worker.tools.backends.backend import RunListing, RunScore
from knowledgepulse_worker.tools.backends.backend_access import require_access
from knowledgepulse_worker.tools.backends.pull_output import FileOutput, file_name
from knowledgepulse_worker.tools.backends.pull_runs import Pull, PullRules
from knowledgepulse_worker.tools.backends.pull_state import PullState, source_name
from knowledgepulse_worker.tools.common.retries import NoAnswerError
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport
from support.backends import FAKES, START, AgentRun, FakeMLflow, FakePhoenix
from support.commands import invoked

NOW = int(START.timestamp() * 1000) + 3_600_000
"""An hour after the first run."""


@pytest.fixture(params=FAKES, ids=lambda fake: fake.name)
def fake(request, monkeypatch):
    for variable in BACKENDS[request.param.name].variables[0]:
        monkeypatch.setenv(variable, "hidden-key")
    return request.param()


@pytest.fixture
def pull(tmp_path):
    """Return a function that pulls once, and returns the objectives of the traces in the output file."""

    file = tmp_path / "traces.jsonl"

    async def run(fake, *, crash_after=None, now=NOW, waits=None, **rules):
        async def wait(seconds, problem):
            waits.append((seconds, str(problem)))

        async with fake.served() as url, connected(fake.name, url, "default", wait=wait) as backend:
            with PullState(tmp_path / "state", fake.name) as state:
                output = FileOutput(file, state.interrupted(file_name(file)))
                state.begin(output.name, output.mark)
                pulling = Pull(backend, state, PullRules(Options(), **rules), ConversionReport(), print, now)
                pages = 0
                async for page in pulling.pages():

                    def take(mark, page=page, is_last=pages == crash_after):
                        if is_last:
                            raise RuntimeError("killed")
                        state.take(page.listings, mark)

                    await output.write(page.traces, take)
                    pages += 1
                state.finish(pulling.next_since_ms)
        lines = file.read_text().splitlines()
        return [json.loads(line)["task"]["objective"] for line in lines]

    return run


def test_each_backend_is_tested():
    assert {fake.name for fake in FAKES} == BACKENDS.keys()


def objectives(*numbers):
    return [AgentRun(number).objective for number in numbers]


async def test_each_run_is_pulled_once(fake, pull):
    fake.runs = [AgentRun(number) for number in range(5)]
    assert sorted(await pull(fake)) == objectives(*range(5))
    assert sorted(await pull(fake)) == objectives(*range(5))
    fake.runs += [AgentRun(7), AgentRun(-1 + 1)]  # the second one arrived late
    found = await pull(fake)
    assert sorted(found[:5]) == objectives(*range(5))
    assert sorted(found[5:]) == objectives(0, 7)


async def test_what_comes_out_is_the_run(fake, pull, tmp_path):
    fake.runs = [AgentRun(3, agent="weatherman", judgements={"success": 0, "confidence": 0.75})]
    await pull(fake)
    trace = json.loads((tmp_path / "traces.jsonl").read_text())
    run = fake.runs[0]
    is_mean = fake.name == "langsmith"  # of what people say: not the agent's own confidence
    assert trace["outcome"] == {"result_summary": run.answer, "confidence": 0.5 if is_mean else 0.75}
    assert [step["content"] for step in trace["steps"]] == [run.answer]
    assert trace["metadata"]["created_at"] == run.stopped.isoformat(timespec="milliseconds").replace(
        "+00:00", "Z"
    )
    assert (trace["metadata"]["agent_id"], trace["metadata"]["success"]) == ("weatherman", False)
    assert trace["metadata"]["visibility"] == "private"
    assert trace["metadata"]["pulled_from"] == {
        "backend": fake.name,
        "project": "default",
        "run": fake.run_id(run),
    }


async def test_a_run_that_has_not_ended_waits_and_is_taken_once(fake, pull):
    fake.runs = [AgentRun(0), AgentRun(1, ended=False), AgentRun(2)]
    now = NOW - 3_300_000  # five minutes after the first run
    assert sorted(await pull(fake, now=now, late_ms=300_000)) == objectives(0, 2)
    assert len(await pull(fake, now=now, late_ms=300_000)) == 2
    fake.runs[1].ended = True
    assert sorted(await pull(fake, now=NOW)) == objectives(0, 1, 2)
    assert len(await pull(fake)) == 3


async def test_a_run_that_never_ends_is_taken_as_it_is(fake, pull):
    fake.runs = [AgentRun(0, ended=False)]
    assert await pull(fake, now=NOW + 3_600_000) == objectives(0)


@pytest.mark.parametrize("pages", [0, 1, 2])
async def test_a_crash_repeats_and_loses_nothing(fake, pull, pages, monkeypatch):
    """It comes after the traces of a page were written, and before that was recorded."""
    monkeypatch.setattr("knowledgepulse_worker.tools.backends.pull_runs._BATCH", 1)
    fake.runs = [AgentRun(number) for number in range(4)]
    with pytest.raises(RuntimeError, match="killed"):
        await pull(fake, crash_after=pages)
    assert sorted(await pull(fake)) == objectives(*range(4))


async def test_only_what_is_asked_for_is_pulled(fake, pull):
    fake.runs = [AgentRun(0), AgentRun(1, agent="other"), AgentRun(2), AgentRun(3)]
    minute = int(START.timestamp() * 1000) + 60_000
    found = await pull(fake, since_ms=minute, until_ms=minute + 90_000, agent="helper")
    assert found == objectives(2)


async def test_a_busy_backend_is_asked_again_when_it_says(fake, pull):
    fake.runs, waits = [AgentRun(0)], []
    fake.script += [
        web.Response(status=429, headers={"Retry-After": "7"}),
        web.Response(status=503),
        web.Response(status=502),
    ]
    assert await pull(fake, waits=waits) == objectives(0)
    assert [reason for _, reason in waits] == ["status 429", "status 503", "status 502"]
    assert waits[0][0] == 7


async def test_a_backend_that_is_down_ends_the_pull_after_a_while(fake, pull):
    fake.script += [web.Response(status=503) for _ in range(20)]
    with pytest.raises(InputError, match="status 503; gave up after "):
        await pull(fake, waits=[])


async def test_a_wait_for_a_backend_is_told_once_for_each_reason(monkeypatch, capsys):
    monkeypatch.setattr(backend_client, "_printed", LogInterval())
    for reason in ("status 503", "status 503", "no answer in time"):
        await backend_client.wait(0.0, NoAnswerError(reason))

    assert capsys.readouterr().err.splitlines() == [
        "waiting for the backend: status 503",
        "waiting for the backend: no answer in time",
    ]


async def test_a_key_is_sent_and_never_shown(fake, pull):
    await pull(fake)
    sent = " ".join(fake.headers.values())
    assert "hidden-key" in sent or "aGlkZGVuLWtleTpoaWRkZW4ta2V5" in sent  # as a user and a password
    fake.script.append(web.Response(status=401, text="not hidden-key, please"))
    with pytest.raises(SecurityError, match="refuses the key, status 401: not ") as refused:
        await pull(fake)
    assert "hidden-key" not in str(refused.value)


@pytest.mark.parametrize(
    ("variables", "file", "sent"),
    [
        ({}, None, None),
        ({"TOKEN": "a.b-c"}, None, "Bearer a.b-c"),
        ({"USERNAME": "ann", "PASSWORD": "p:w"}, None, "Basic YW5uOnA6dw=="),
        ({"USERNAME": "ann", "PASSWORD": "p:w", "TOKEN": "a.b-c"}, None, "Basic YW5uOnA6dw=="),
        ({"USERNAME": "ann", "TOKEN": "a.b-c"}, None, "Bearer a.b-c"),
        ({"TOKEN": "a.b-c"}, "d.e-f\n", "Bearer d.e-f"),
        ({"TOKEN": "a.b-c"}, "ann:p:w\n", "Basic YW5uOnA6dw=="),
    ],
)
async def test_mlflow_takes_a_token_or_a_user_as_its_own_client_does(
    monkeypatch, tmp_path, variables, file, sent
):
    for names in BACKENDS["mlflow"].variables:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)
    key_file = tmp_path / "key" if file else None
    if key_file:
        key_file.write_text(file)
    fake = FakeMLflow()
    async with fake.served() as url, connected("mlflow", url, "default", key_file) as backend:
        assert [page async for page in backend.runs(None)] == [[]]
    assert fake.headers.get("Authorization") == sent


@pytest.mark.parametrize(
    ("key", "secrets"),
    [("a.b-c", ["a.b-c"]), ("ann:pass:word", ["ann:pass:word", "pass:word", "YW5uOnBhc3M6d29yZA=="])],
)
async def test_no_message_has_mlflow_s_key(tmp_path, key, secrets):
    """Neither the password alone, nor the header, which servers may repeat."""
    (tmp_path / "key").write_text(key)
    fake = FakeMLflow()
    fake.script.append(web.Response(status=403, text=f"not {', '.join(secrets)}, please"))
    async with fake.served() as url, connected("mlflow", url, "default", tmp_path / "key") as backend:
        with pytest.raises(SecurityError, match=r"refuses the key, status 403: not .*, please") as refused:
            _ = [page async for page in backend.runs(None)]
    assert [secret for secret in secrets if secret in str(refused.value)] == []


async def test_access_to_a_backend_takes_an_answer_and_a_key(fake):
    async with fake.served() as url:
        assert await require_access(fake.name, url, "default", None) == url
        fake.script.append(web.Response(status=401, text="who?"))
        with pytest.raises(SecurityError) as refused:
            await require_access(fake.name, url, "default", None)
        fake.is_down = True
        with pytest.raises(InputError, match=f"^{url}: status 503$"):
            await require_access(fake.name, url, "default", None)
    told = f"{url}: refuses the key, status 401: who?; the key is read from --key-file, or else from `"
    assert str(refused.value).startswith(told)
    assert all(name in str(refused.value) for names in BACKENDS[fake.name].variables for name in names)


def score(run, value=0.5):
    return RunScore(
        run=run, trace_id=f"kp:trace:{run}", value=value, label="rejected", explanation="novelty 0.5000",
        time_ms=NOW, details={"kp.policy": "0123456789ab", "kp.rank": "1 of 2"},
    )  # fmt: skip


async def test_each_score_is_there_once_however_often_it_is_sent(fake):
    fake.runs = [AgentRun(0), AgentRun(1)]
    first, second = (score(fake.run_id(run)) for run in fake.runs)
    async with fake.served() as url:
        for scores in ([], [first, second], [first, second], [replace(first, value=0.875)]):
            async with connected(fake.name, url, "default") as backend:  # as after a restart
                assert await backend.send(scores) == []
    assert {run: [score[0] for score in scores.values()] for run, scores in fake.scores.items()} == {
        first.run: [0.875],
        second.run: [0.5],
    }
    (said,) = fake.scores[second.run].values()
    assert said[1] == "rejected"
    assert said[2].endswith("novelty 0.5000")
    assert said[3].items() >= second.details.items()


async def test_a_refused_score_is_named_and_the_others_are_written(fake):
    fake.runs = [AgentRun(0), AgentRun(1)]
    known = [score(fake.run_id(run)) for run in fake.runs]
    unknown = score(fake.run_id(AgentRun(2)))
    async with fake.served() as url, connected(fake.name, url, "default") as backend:
        refusals = await backend.send([known[0], unknown, known[1]])
    assert [refusal.score for refusal in refusals] == [unknown]
    assert "no" in refusals[0].reason
    assert fake.scores.keys() == {place.run for place in known}


async def test_a_pull_refuses_the_state_of_another(tmp_path):
    with PullState(tmp_path / "state", "phoenix here default") as state:
        state.begin("file x", 0)
        with (
            pytest.raises(InputError, match="another pull uses it"),
            PullState(tmp_path / "state", "phoenix"),
        ):
            pass
    with (
        pytest.raises(InputError, match="state of another pull"),
        PullState(tmp_path / "state", "mlflow there"),
    ):
        pass
    (tmp_path / "state").write_text("[]\n")
    with (
        pytest.raises(InputError, match="is no state of"),
        PullState(tmp_path / "state", "phoenix here default"),
    ):
        pass


def test_a_pull_to_a_topic_that_was_interrupted_is_completed_there(tmp_path):
    """Only the topic tells which pages it has."""
    with PullState(tmp_path / "state", "x") as state:
        state.begin("topic raw", 0)
        state.take([RunListing("1", 1)], 1)
    with (
        PullState(tmp_path / "state", "x") as state,
        pytest.raises(InputError, match="a pull to topic raw was interrupted; complete it there first"),
    ):
        state.interrupted("file b")
    with PullState(tmp_path / "state", "x") as state:
        assert state.interrupted("topic raw") == 1
        state.begin("topic raw", 1)
        state.finish(None)
    with PullState(tmp_path / "state", "x") as state:
        assert (state.interrupted("file b"), state.taken) == (None, {"1": 1})


@pytest.mark.parametrize("is_there", [True, False])
def test_a_pull_may_go_on_in_another_file(tmp_path, is_there):
    """As where each day has a file: the former one keeps whole pages, and the new one gets the rest."""
    former, new = tmp_path / "monday.jsonl", tmp_path / "tuesday.jsonl"
    with PullState(tmp_path / "state", "x") as state:
        state.begin(file_name(former), 0)
        state.take([RunListing("1", 1)], 10)
    if is_there:
        former.write_text("a page of 10 and half of the next one")
    new.write_text("larger than the former one ever was")
    with PullState(tmp_path / "state", "x") as state:
        output = FileOutput(new, state.interrupted(file_name(new)))
        state.begin(output.name, output.mark)
        assert state.taken == {"1": 1}
    assert new.read_text() == "larger than the former one ever was"
    assert former.exists() == is_there
    assert not is_there or former.read_text() == "a page of "


def test_a_new_file_is_the_owner_s_alone_and_a_changed_mode_is_kept(tmp_path):
    """As those of a dataset: both may hold traces that are private."""
    file = tmp_path / "traces.jsonl"
    FileOutput(file, None)
    assert oct(file.stat().st_mode & 0o777) == "0o600"

    file.chmod(0o644)
    FileOutput(file, None)
    assert oct(file.stat().st_mode & 0o777) == "0o644"


def test_what_was_recorded_and_is_not_in_the_output_is_pulled_again(tmp_path):
    """A page is recorded before it is published; the topic tells whether it was."""
    with PullState(tmp_path / "state", "x") as state:
        state.begin("topic raw", 7)
        state.take([RunListing("1", 1)], 8)
        state.take([RunListing("2", 2)], 9)
        before = state.id
    for held, taken in ((9, {"1": 1, "2": 2}), (8, {"1": 1}), (7, {})):
        shutil.copy(tmp_path / "state", tmp_path / "copy")
        with PullState(tmp_path / "copy", "x") as state:
            state.begin("topic raw", held)
            assert (state.taken, state.id) == (taken, before)
        with PullState(tmp_path / "copy", "x") as state:
            assert state.interrupted("topic raw") == held


async def test_a_backend_s_runs_are_scored_without_kafka_and_the_scores_written_back(fake, tmp_path):
    fake.runs = [AgentRun(number) for number in range(3)]
    async with fake.served() as url:
        command = ("score-runs", fake.name, url, "--embedder", "lexical")
        for _ in range(2):
            result = await invoked(*command, "--table", "--write-back")
            assert result.exit_code == 0, result.output
        lines = await invoked(*command, "--traces")
        fake.runs = []
        empty = await invoked(*command)
    table, _, report = result.stdout.partition("\n\n")
    shown = [next(word for word in row.split() if word in fake.scores) for row in table.splitlines()[1:]]
    assert sorted(shown) == sorted(fake.scores)
    assert report.startswith("3 runs: scores from 0.")
    assert "3 scores written to" in result.stderr
    scored = [json.loads(line) for line in lines.stdout.splitlines()]
    wanted = {line["trace"]["metadata"]["pulled_from"]["run"]: line["quality_score"] for line in scored}
    found = {run: [score[0] for score in scores.values()] for run, scores in fake.scores.items()}
    assert found == {run: [pytest.approx(value, abs=0.0001)] for run, value in wanted.items()}
    (details,) = (score[3] for score in fake.scores[next(iter(wanted))].values())
    assert details.keys() >= {"kp.policy", "kp.rank"}
    assert (empty.exit_code, "has no run that can be scored" in str(empty.exception)) == (1, True)


async def test_a_pull_is_a_command(fake, tmp_path):
    fake.runs = [AgentRun(0), AgentRun(1)]
    async with fake.served() as url:
        command = (
            "pull",
            fake.name,
            url,
            "--state",
            tmp_path / "state",
            "--output",
            tmp_path / "traces.jsonl",
        )
        assert (await invoked(*command)).exit_code == 0
        again = await invoked(*command)
        printed = await invoked("pull", fake.name, url)
    lines = (tmp_path / "traces.jsonl").read_text()
    assert len(lines.splitlines()) == 2
    assert sorted(printed.stdout.splitlines()) == sorted(lines.splitlines())
    assert "0 traces, 0 with a known outcome; 0 not converted" in again.stderr


async def test_a_password_in_an_address_is_sent_and_neither_shown_nor_kept(tmp_path):
    fake, state = FakePhoenix(), tmp_path / "state"
    fake.runs = [AgentRun(0)]
    async with fake.served() as url:
        with_password = url.replace("http://", "http://ann:p%40ss@")
        await invoked("pull", "phoenix", with_password, "--state", state)
        sent = fake.headers["Authorization"]
        fake.script.append(web.Response(status=422, text="not p@ss, please"))
        refused = await invoked("pull", "phoenix", with_password, "--state", state)
    assert sent == "Basic YW5uOnBAc3M="
    assert str(refused.exception) == f"{url.replace('http://', 'http://***@')}: status 422: not ***, please"
    assert b"ss" not in state.read_bytes()
    assert oct(state.stat().st_mode & 0o777) == "0o600"


def test_a_state_that_has_a_password_of_an_earlier_release_is_read_without_it(tmp_path):
    file = tmp_path / "state"
    file.write_text('{"source":"phoenix http://ann:pass@host default","id":"x","taken":{"1":1}}\n')
    name = source_name("phoenix", "http://ann:pass@host", "default")
    with PullState(file, name) as state:
        assert state.taken == {"1": 1}
        state.finish(None)
    assert "pass" not in file.read_text()
    with (
        pytest.raises(InputError, match=r"state of another pull, phoenix http://\*\*\*@host default"),
        PullState(file, "mlflow there"),
    ):
        pass


async def test_a_key_beside_a_user_in_the_address_is_refused(monkeypatch):
    monkeypatch.setenv("PHOENIX_API_KEY", "key")
    with pytest.raises(InputError, match="has a user, and there is a key: only one of them can be sent"):
        async with connected("phoenix", "http://ann:pass@localhost", "default"):
            pass


async def test_a_score_of_the_backend_judges_the_runs_that_are_pulled():
    """As `convert` takes it, with `--success-from`."""
    fake = FakeMLflow()
    fake.runs = [AgentRun(0, judgements={"correctness": 0.4}), AgentRun(1, judgements={"correctness": 0.8})]
    async with fake.served() as url:
        result = await invoked("pull", fake.name, url, "--success-from", "correctness=0.5")

    told = [json.loads(line)["metadata"] for line in result.stdout.splitlines()]
    assert sorted((each["success"], each["outcome_source"]) for each in told) == [
        (False, "label"),
        (True, "label"),
    ]
