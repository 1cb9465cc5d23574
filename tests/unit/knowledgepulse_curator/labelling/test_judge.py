"""Labels of a model, from a local server that speaks as OpenAI's does."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from knowledgepulse_curator.labelling import judge
from knowledgepulse_curator.labelling.judge import verdict_of
from knowledgepulse_worker.errors import InputError

USAGE = {"prompt_tokens": 100, "completion_tokens": 2}


def says(word, status=200, **headers):
    body = {"choices": [{"message": {"content": word}}], "usage": USAGE}
    return status, body if status == 200 else {"error": word}, headers


@pytest.fixture
def server():
    """Answer by the objective; `asked` has the requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            objective = json.loads(request["messages"][1]["content"])["objective"]
            self.server.asked.append((self.path, self.headers["Authorization"], objective, request))
            answers = self.server.answers[objective]
            status, body, headers = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.asked, httpd.answers = [], {}
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield httpd
        httpd.shutdown()
        thread.join()


@pytest.fixture
def waits(monkeypatch):
    """Record what the command waits for, and do not wait."""
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    monkeypatch.setattr(judge.asyncio, "sleep", sleep)
    return waited


@pytest.fixture
def run(kp_worker, server, waits, tmp_path, real_traces):
    """Judge traces with these objectives."""

    def judged(*objectives, rubric="No rude answers.", times=1):
        (tmp_path / "rubric.md").write_text(rubric)
        trace = json.loads(real_traces[0])
        lines = [
            json.dumps({**trace, "id": f"kp:trace:{n}", "task": {"objective": objective}})
            for n, objective in enumerate(objectives)
        ]
        (tmp_path / "traces.jsonl").write_text("\n".join(lines))
        return kp_worker(
            *("policy", "label", tmp_path / "traces.jsonl", "--embedder", "none"),
            *("--output", tmp_path / "judged.jsonl", "--rubric", tmp_path / "rubric.md", "--model", "m"),
            *("--judge", f"http://127.0.0.1:{server.server_port}/v1", "--per-minute", 30, "--times", times),
            env={"OPENAI_API_KEY": "secret"},
        )

    return judged


def labels(tmp_path):
    lines = (tmp_path / "judged.jsonl").read_text().splitlines()
    told = map(json.loads, lines)
    return {label["id"][-1]: label["keep"] for label in told if not label.get("skipped")}


def test_a_model_labels_and_its_cost_is_told(run, server, waits, tmp_path):
    server.answers = {"a": [says("Keep.")], "b": [says("drop")], "c": [says("Well, that depends\u202e")]}

    result = run("a", "b", "c", "a")

    assert result.exit_code == 0, result.output
    assert labels(tmp_path) == {"0": True, "1": False, "3": True}
    assert "2 to keep, 1 to drop, 1 unclear; 300 tokens sent, 6 received" in result.stdout
    assert re.match(r"asking m 3 times, which sends about [1-9][\d,]+ tokens\n", result.stderr)
    assert "kp:trace:2: neither keep nor drop: Well, that depends\\u202e" in result.stderr
    assert sorted(objective for _, _, objective, _ in server.asked) == ["a", "b", "c"]  # equal texts once
    path, key, _, request = server.asked[0]
    assert (path, key, request["model"]) == ("/v1/chat/completions", "Bearer secret", "m")
    assert "No rude answers." in request["messages"][0]["content"]
    assert waits == [2.0] * 3
    (source,) = {json.loads(line)["source"] for line in (tmp_path / "judged.jsonl").read_text().splitlines()}
    assert source.startswith("judge:m:")


def test_a_model_that_is_asked_several_times_gives_the_share_of_its_clear_answers(run, server, tmp_path):
    server.answers = {
        "a": [says("keep"), says("drop"), says("keep"), says("keep")],
        "b": [says("drop"), says("Hm"), says("keep"), says("drop")],
        "c": [says("Hm"), says("drop")],
    }

    result = run("a", "b", "a", times=3)

    assert result.exit_code == 0, result.output
    assert "asking m 6 times" in result.stderr
    assert "3 to keep, 0 to drop, 1 unclear; 600 tokens sent" in result.stdout
    lines = [json.loads(line) for line in (tmp_path / "judged.jsonl").read_text().splitlines()]
    assert {line["id"][-1]: line["reward"] for line in lines} == {"0": 2 / 3, "1": 1 / 2, "2": 2 / 3}
    assert all(line["source"].startswith("judge:m:") and line["source"].endswith(":3") for line in lines)
    asked = len(server.asked)
    assert "asking m 3 times" in run("a", "b", "a", "c", times=3).stderr  # the others are labelled
    assert len(server.asked) == asked + 3


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("keep", True),
        (" **Drop.**\n", False),
        ("<think>I could drop it.\nBut no.</think>keep", True),
        ("<think>Hm.</think>\n\nAnswer: `keep`", True),
        ("The run is fine.\n\nVerdict: drop", False),
        ("I would not keep", None),
        ("keep or drop", None),
        ("<think>keep", None),
        ("", None),
    ],
)
def test_an_answer_of_a_reasoning_model_is_read(answer, verdict):
    assert verdict_of(answer) is verdict


def test_a_run_with_mostly_unclear_answers_fails_and_shows_three(run, server, tmp_path):
    server.answers = {letter: [says(f"It depends on {letter}")] for letter in "abcd"} | {"e": [says("keep")]}

    result = run("a", "b", "c", "d", "e")

    assert result.exit_code == 1
    assert labels(tmp_path) == {"4": True}
    assert result.stderr.count("neither keep nor drop: It depends on") == 3
    assert "1 to keep, 0 to drop, 4 unclear; " in result.stderr
    assert "most answers are unclear: change the rubric or the model" in result.stderr


def test_no_server_is_told_below_the_price_and_nothing_is_written(run, server, tmp_path):
    server.server_port = 1

    result = run("a")

    assert result.exit_code == 1
    _, error = result.stderr.splitlines()
    assert error.startswith("Error: http://127.0.0.1:1/v1/chat/completions: Cannot")
    assert (tmp_path / "judged.jsonl").read_bytes() == b""


def test_it_goes_on_after_an_error_and_another_rubric_asks_again(run, server, tmp_path):
    server.answers = {"a": [says("no such model", 404)], "b": [says("keep")], "c": [says("keep")]}
    failed = run("a", "b", "c")
    assert failed.exit_code == 1
    assert '/v1/chat/completions: 404: {"error": "no such model"}' in failed.stderr
    assert "Traceback" not in failed.stderr
    done, asked = labels(tmp_path), len(server.asked)
    assert 0 < len(done) < 3

    server.answers["a"] = [says("drop")]
    assert run("a", "b", "c").exit_code == 0
    assert labels(tmp_path) == {"0": False, "1": True, "2": True}
    assert len(server.asked) == asked + 3 - len(done)

    assert run("a", "b", "c", rubric="Be strict.").exit_code == 0
    assert len(server.asked) == asked + 6 - len(done)


def test_a_busy_server_is_asked_again_when_it_says(run, server, waits, tmp_path):
    server.answers = {"a": [says("slow down", 429, Retry_After="7"), says("busy", 503), says("keep")]}

    assert run("a").exit_code == 0
    assert labels(tmp_path) == {"0": True}
    assert waits[:3] == [2.0, 7, 2.0]
    assert len(waits) == 5


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((307, {}, {"Location": "http://elsewhere.invalid/"}), "/v1/chat/completions: 307: {}"),
        ((200, b"\xff", {}), "/v1/chat/completions: not an answer of a chat model"),
        ((200, b"[" * 100_000, {}), "/v1/chat/completions: not an answer of a chat model"),
        ((400, {"error": "Bearer secret is wrong"}, {}), '400: {"error": "Bearer *** is wrong"}'),
        ((200, says("secret")[1], {}), "neither keep nor drop: ***"),
    ],
)
def test_a_strange_answer_is_told_in_a_line(run, server, answer, said):
    server.answers = {"a": [answer]}
    failed = run("a")
    assert said in failed.stderr
    assert "secret" not in failed.output
    assert "Traceback" not in failed.output


def test_a_busy_server_waits_for_ever_in_vain(run, server, waits):
    server.answers = {"a": [says("slow down", 429, Retry_After="9" * 4000), says("keep")]}
    assert run("a").exit_code == 0
    assert waits == [2.0, 600, 2.0]


@pytest.mark.parametrize("url", ["http://user:SECRET@host/v1", "ftp://host?SECRET", "http://["])
def test_another_address_than_a_server_s_is_refused(url):
    with pytest.raises(InputError, match=r"^--judge: got ") as refused:
        judge._address(url)
    assert "SECRET" not in str(refused.value)
