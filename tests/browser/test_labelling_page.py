"""The labelling page in a real browser, served by the command in a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.async_api import Page, expect

from knowledgepulse_worker.tools.demo.processes import free_ports
from support.accessibility import COLOURS, serious_findings
from support.contrasts import CONTRASTS

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]  # one browser for all

BIDI_OVERRIDE = "\u202e"
HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    f"{BIDI_OVERRIDE}\x00<b>bold</b>"
)


class Command:
    """A running `kp-worker policy label`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("label at http://127.0.0.1:"), line
        self.url = line.removeprefix("label at ").strip()

    def kill(self) -> None:
        """As the out-of-memory killer does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def label(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start the command on traces: `label(lines, "ann", count=50)`; the labels are in `labels.jsonl`."""
    with ExitStack() as stack:

        def start(lines: list[bytes], by: str = "ann", count: int = 50, *options: str) -> Command:
            traces = tmp_path / "traces.jsonl"
            traces.write_bytes(b"\n".join(lines))
            process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "knowledgepulse_worker.cli.entry",
                        "policy",
                        "label",
                        str(traces),
                    ),
                    *("--embedder", "none", "--output", str(tmp_path / "labels.jsonl"), "--by", by),
                    *("--count", str(count), "--port", str(free_ports(1)[0]), *options),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return Command(process)

        yield start


def labels(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]


def hostile_trace(real_traces: list[bytes], **steps: object) -> bytes:
    trace = json.loads(real_traces[0])
    trace |= {"id": f"kp:trace:{HOSTILE}", "task": {"objective": HOSTILE}}
    trace["outcome"]["result_summary"] = HOSTILE
    trace["steps"] = steps.get("steps") or [
        {"step_id": 0, "type": "thought", "content": HOSTILE + "x" * 100_000},
        {
            "step_id": 1,
            "type": "tool_call",
            "tool": {"name": HOSTILE},
            "input": {HOSTILE: HOSTILE, "n": 12345678901234567890},
        },
        {"step_id": 2, "type": "observation", "content": HOSTILE},
    ]
    return json.dumps(trace).encode()


async def shown(page: Page) -> str:
    return await page.locator("#about dd").first.inner_text()


async def press(page: Page, key: str, status: str) -> None:
    await page.keyboard.press(key)
    await expect(page.get_by_role("status")).to_contain_text(status)


async def test_fifty_traces_are_labelled_by_keyboard_through_a_kill(label, visit, real_traces, tmp_path):
    command, judged = label(real_traces), {}
    page = (here := await visit(command.url)).page
    await expect(page.locator("#question")).to_be_focused()
    for number in range(50):
        if number == 23:
            command.kill()
            assert {label["id"]: label["keep"] for label in labels(tmp_path)} == judged
            await page.keyboard.press("k")
            await expect(page.get_by_role("alert")).to_contain_text("Nothing was written")
            here.complaints.clear()  # of the lost connection
            command = label(real_traces)
            await page.goto(command.url)
            await expect(page.get_by_role("status")).to_contain_text("23 of 50 labelled")
        keep = number % 3 > 0
        trace = await shown(page)
        assert trace not in judged
        judged[trace] = keep
        await press(page, "k" if keep else "d", f"{number + 1} of 50 labelled")

    await expect(page.locator("#end")).to_contain_text("All 50 traces are labelled")
    await expect(page.locator("#end")).not_to_contain_text("label more")
    await expect(page.locator("#keep")).to_be_disabled()
    assert {label["id"]: label["keep"] for label in labels(tmp_path)} == judged
    assert {label["source"] for label in labels(tmp_path)} == {"ann"}
    assert len(labels(tmp_path)) == 50
    assert here.complaints == []
    assert len(here.asked) == 2  # the two starts, and nobody else


async def test_skip_and_undo(label, visit, real_traces, tmp_path):
    page = (await visit(label(real_traces, count=3).url)).page
    first = await shown(page)
    await page.keyboard.press("s")
    await expect(page.locator("#about dd").first).not_to_have_text(first)
    second = await shown(page)
    await press(page, "k", "1 of 3")
    await press(page, "d", "2 of 3")
    await expect(page.locator("#about dd").first).to_have_text(first)  # what was skipped comes last

    await press(page, "u", "1 of 3")
    await press(page, "u", "0 of 3")
    await expect(page.locator("#about dd").first).to_have_text(second)
    assert [label["skipped"] for label in labels(tmp_path)] == [True]
    await expect(page.get_by_role("status")).to_contain_text("1 skipped")
    await page.keyboard.press("u")
    await expect(page.get_by_role("status")).not_to_contain_text("skipped")
    assert labels(tmp_path) == []
    await expect(page.locator("#about dd").first).to_have_text(first)
    await expect(page.locator("#undo")).to_be_disabled()


async def test_what_a_trace_holds_is_readable_and_collapsed(label, visit, real_traces):
    """Also: the score is one key away, so that it does not sway the judgement."""
    page = (await visit(label(real_traces, count=1).url)).page
    observation = page.locator("details.observation").first
    await expect(observation).not_to_have_attribute("open", "")
    await page.keyboard.press("o")
    await expect(observation).to_have_attribute("open", "")
    await expect(page.locator("#score")).to_be_hidden()
    await page.keyboard.press("w")
    await expect(page.locator("#score")).to_contain_text("outcome confidence")
    await expect(page.locator("#score")).to_contain_text(re.compile("falls short by|passes by"))


async def test_the_question_the_rubric_and_the_result_come_before_the_steps(
    label, visit, real_traces, tmp_path
):
    """The prompt's boilerplate used to fill the first screen."""
    (tmp_path / "rubric.md").write_text("Nothing rude.")
    url = label(real_traces, "ann", 1, "--rubric", str(tmp_path / "rubric.md")).url
    page = (await visit(url, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)).page

    seen = [page.locator(name) for name in ("#question", "#rubric", "#task", "#result", "#steps", "footer")]
    *tops, buttons = [(await part.bounding_box())["y"] for part in seen]
    assert tops == sorted(tops)
    assert tops[-1] < buttons
    await expect(page.locator("#objective")).to_be_hidden()
    await page.get_by_text("Rubric", exact=True).tap()
    await expect(page.locator("#criteria")).to_have_text("Nothing rude.")
    await expect(page.locator("#keep kbd")).to_be_hidden()  # there are no keys


async def test_code_is_shown_as_code(label, visit, real_traces):
    said = "I call `run`:\n```python\nrun(1)\n```\nthen ```run(2)``` and wait. " + "x" * 100_000
    steps = [{"step_id": 0, "type": "thought", "content": said}]
    page = (await visit(label([hostile_trace(real_traces, steps=steps)]).url)).page

    await expect(page.locator("#steps code")).to_have_text("run")
    assert await page.locator("#steps pre").all_inner_texts() == ["run(1)", "run(2)"]


async def test_the_end_says_what_a_fit_still_needs_and_the_command_that_uses_the_labels(
    label, visit, real_traces, tmp_path
):
    page = (await visit(label(real_traces, count=1).url)).page
    await press(page, "k", "1 of 1 labelled")

    end = page.locator("#end")
    await expect(end).to_contain_text("The trace is labelled")
    told = "label more with a larger --count: it needs at least 10 traces to keep and 10 to drop"
    await expect(end).to_contain_text(told)
    await expect(end.locator("pre")).to_have_text(
        f"kp-worker policy evaluate {tmp_path}/traces.jsonl --embedder none --labels {tmp_path}/labels.jsonl"
    )


async def test_text_from_a_trace_never_becomes_markup(label, visit, real_traces, tmp_path):
    page = (here := await visit(label([hostile_trace(real_traces)]).url)).page
    await page.keyboard.press("w")
    await page.keyboard.press("o")
    await page.get_by_role("button", name="more characters").click()

    body = await page.locator("body").inner_text()
    assert body.count("<script>document.title='owned'</script><img src=x") >= 7
    assert "\\u{202e}\\u{0}<b>bold</b>" in body
    assert BIDI_OVERRIDE not in body
    assert "12345678901234567890" in body  # JavaScript's numbers would have rounded it
    assert await page.title() == "Label traces"
    assert await page.locator("main :is(img, script, b, iframe)").count() == 0
    assert here.complaints == []
    await press(page, "k", "1 of 1")
    assert "<script>" in str(labels(tmp_path)[0]["id"])


async def test_a_trace_of_very_many_steps_opens_in_parts(label, visit, real_traces):
    steps = [{"step_id": n, "type": "thought", "content": f"thought {n}"} for n in range(5000)]
    page = (await visit(label([hostile_trace(real_traces, steps=steps)]).url)).page

    await expect(page.locator("#steps > li")).to_have_count(201)
    await page.get_by_role("button", name="4,800 more steps").click()
    await expect(page.locator("#steps > li")).to_have_count(401)


async def test_it_fits_and_is_accessible_in_both_colours(label, visit, real_traces):
    page = (await visit(label([hostile_trace(real_traces)]).url, color_scheme="light")).page
    await page.keyboard.press("w")
    await page.keyboard.press("o")

    assert await serious_findings(page) == []
    for width, scheme in ((320, "light"), (960, "dark")):
        await page.set_viewport_size({"width": width, "height": 700})
        await page.emulate_media(color_scheme=scheme)
        assert await page.evaluate("document.documentElement.scrollWidth") == width
        contrasts = await page.evaluate(CONTRASTS)
        assert len(contrasts) > 30
        assert [contrast for contrast in contrasts if contrast[0] < 4.5] == []
    assert await serious_findings(page, COLOURS) == []
    await press(page, "k", "1 of 1")
    assert await serious_findings(page) == []


def answer(url: str, headers: dict[str, str], body: bytes | None = None) -> int:
    try:
        with urlopen(Request(url, data=body, headers=headers)) as response:
            return response.status
    except HTTPError as error:
        return error.code


async def test_only_the_page_itself_reads_and_writes(label, real_traces, tmp_path):
    url = label(real_traces).url
    origin = url.rsplit("/", 2)[0]
    port, change = origin.rsplit(":", 1)[1], json.dumps({"revision": 0, "verdict": "keep"}).encode()
    json_type = {"Content-Type": "application/json"}

    assert answer(url, {}) == 200
    assert answer(f"{origin}/", {}) == answer(f"{origin}/guess/api/trace", {}) == 404
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}"):
        assert answer(f"{url}api/trace", {"Host": host}) == 421
    for other in (
        {},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        assert answer(f"{url}api/label", json_type | other, change) == 403
    assert (
        answer(f"{url}api/label", json_type | {"Origin": origin}, b'{"revision": 0, "verdict": "delete"}')
        == 400
    )
    for broken in (b'{"revision": 0, "verdict": "\xff"}', b"\xff", b"[" * 100_000):
        assert answer(f"{url}api/label", json_type | {"Origin": origin}, broken) == 400
    assert answer(f"{url}api/label", json_type | {"Origin": origin}, change.replace(b"0", b"7")) == 409
    assert labels(tmp_path) == []
    assert answer(f"{url}api/label", json_type | {"Origin": origin}, change) == 200
    assert len(labels(tmp_path)) == 1


async def test_the_page_says_how_a_run_ended_and_whether_somebody_judged_it(label, visit, real_traces):
    """But not what they judged, since a judgement that follows another says nothing about it."""
    expected = {
        "cut off, judged by nobody": {"ending": "cut_off", "outcome_source": "structural_failure"},
        "answered, judged by somebody": {"ending": "answered", "outcome_source": "label"},
        "not told": {"ending": {"failed": 1}, "outcome_source": None},
    }
    runs = []
    for text, told in expected.items():
        run = json.loads(real_traces[0])
        run["id"] = f"kp:trace:{text}"
        run["metadata"] |= told
        runs.append(json.dumps(run).encode())
    page = (await visit(label(runs, count=3).url)).page

    found = {}
    for number in range(3):
        if number:
            await page.keyboard.press("s")
            await expect(page.get_by_role("status")).to_contain_text(f"{number} skipped")
        ending = page.locator("#about > div", has_text="ending").locator("dd")
        found[await shown(page)] = await ending.inner_text()
    assert found == {f"kp:trace:{text}": text for text in expected}
