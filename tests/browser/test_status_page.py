"""The status page in a real browser."""

from __future__ import annotations

import json
import re
import socket
from collections import Counter
from dataclasses import replace

import pytest
from playwright.async_api import expect

from knowledgepulse_worker.http.server import serving
from knowledgepulse_worker.observe.recent import LAST_RECORDS
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import explain_score
from knowledgepulse_worker.settings import Settings, WebSettings
from knowledgepulse_worker.stream.diagnosis import Observation
from knowledgepulse_worker.tools.common.scored_records import read_scored_record
from knowledgepulse_worker.tools.demo.processes import free_ports
from knowledgepulse_worker.verdict import State
from support.accessibility import COLOURS, serious_findings
from support.contrasts import CONTRASTS
from support.streams import Message, headers_of, score_of

WELL = Observation(partitions=4, rate=10.0)
BIDI_OVERRIDE = "\u202e"
HOSTILE = (
    "kp:trace:<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    f"{BIDI_OVERRIDE}\x00\n<b>bold</b>\ud800" + "x" * 5000
)

FOCUSED = """() => {
  const node = document.activeElement;
  return node.id || node.textContent.trim().split("\\n")[0];
}"""

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]  # one browser for all


def passing(scores, threshold):
    return sum(score >= threshold for score in scores)


def share(part, whole):
    return f"{100 * part / whole:.1f}%"


def passing_cell(scores, threshold):
    return f"{share(passing(scores, threshold), len(scores))} {passing(scores, threshold)}"


async def cells(page, selector):
    """Return a table's rows as lists of cell texts."""
    rows = await page.locator(f"{selector} tr").all()
    return [
        [" ".join(text.split()) for text in await row.locator("th, td").all_inner_texts()] for row in rows
    ]


@pytest.mark.integration
async def test_the_page_matches_the_output_topics(make_stream, real_traces, visit):
    stream = await make_stream(2, policy={"threshold": 0.55, "domains": {"code": {"threshold": 0.6}}})
    hostile = json.loads(real_traces[0]) | {"id": HOSTILE, "task": {"objective": HOSTILE}}
    raw = await stream.publish(
        [
            *(
                Message(line, json.loads(line)["id"].encode(), partition=n % 2)
                for n, line in enumerate(real_traces)
            ),
            Message(b'{"id": "<script>no trace</script>"', b"key", partition=0),
            Message(json.dumps(hostile).encode(), b"key", partition=1),
        ]
    )
    async with stream.worker() as worker:
        outputs = await stream.outputs(worker, raw)
        await worker.published(len(raw))
        here = await visit(worker.url)
        page = here.page

        topics, policy = stream.settings.topics, stream.settings.policy
        outcomes = Counter(record.topic for record in outputs)
        scored = [score_of(record) for record in outputs if record.topic != topics.dead_letter]
        by_domain = {
            domain: [score["score"] for score in scored if score["domain"] == domain]
            for domain in ("customer_service", "code")
        }
        everything = [score["score"] for score in scored]
        assert 10 < outcomes[topics.contribute] < outcomes[topics.rejected]

        # what came out
        contributed = f"{outcomes[topics.contribute]} of {len(scored)} scored traces since the start"
        await expect(page.locator("#contributed-more")).to_have_text(contributed)
        await expect(page.locator("#buried")).to_have_text("1")
        await expect(page.locator("#lag")).to_have_text("0 records")
        await page.get_by_text("Histogram as a table").click()
        assert sum(int(row[1]) for row in await cells(page, "#bins")) == len(everything)

        # what would pass
        for threshold in (0.3, 0.44, 0.62):
            await page.get_by_role("slider").fill(str(threshold))
            assert await cells(page, "#by-domain") == [
                [
                    f"{domain} threshold {policy.profiles[domain].threshold}",
                    str(len(scores)),
                    passing_cell(scores, policy.profiles[domain].threshold),
                    passing_cell(scores, threshold),
                ]
                for domain, scores in by_domain.items()
            ]
            total = passing(everything, threshold)
            reading = f"At {threshold}, {share(total, len(everything))} pass: {total} of {len(everything)}"
            await expect(page.locator("#reading")).to_have_text(reading)
            assert sum(int(row[2]) for row in await cells(page, "#bins")) == total

        # the last of them
        for name, topic in (("rejected", topics.rejected), ("contribute", topics.contribute)):
            await page.locator(f"#{name}-more").click()
            published = {
                (
                    f"partition {record.partition}",
                    f"offset {headers_of(record)['kp-source'].rsplit('/', 1)[1]}",
                ): record
                for record in outputs
                if record.topic == topic
            }
            items = await page.locator(f"#{name}-list > li").all()
            assert len(items) == min(LAST_RECORDS, outcomes[topic])
            for item in items:
                place = [text.rstrip(",") for text in await item.locator(".when span").all_inner_texts()]
                record = published[tuple(place)]
                score, trace = score_of(record), json.loads(record.value)
                text = " ".join((await item.inner_text()).split())
                sign = "≥" if score["score"] >= score["threshold"] else "<"
                assert f"{score['score']:.3f} {sign} {score['threshold']:.2f}" in text
                assert f"novelty {score['novelty']:.3f}" in text
                if trace["id"] != HOSTILE:  # that is shown cut, with escapes
                    assert f"trace {trace['id']} nearest {score['nearest'] or 'none'}" in text
            await items[-1].get_by_role("button").click()
            explanation = explain_score(read_scored_record(record), policy)
            breakdown = " ".join((await items[-1].locator(".breakdown").inner_text()).split())
            for part in explanation.parts:
                product = f"{part.value:.4f} × {part.weight:g} = {part.points:.4f}"
                assert f"{part.dimension.replace('_', ' ')} {product}" in breakdown
            for words in (policy.digest, *explanation.remedies, explanation.verdict[1:]):
                assert words in breakdown
        dead = headers_of(next(record for record in outputs if record.topic == topics.dead_letter))
        await expect(page.locator("#dead-list")).to_contain_text(dead["kp-reason"])
        await expect(page.locator("#dead-list")).to_contain_text(dead["__streams.errors.message"])

        # who works here
        assert [row[:3] for row in await cells(page, "#by-partition")] == [
            [n, "0", "recovered"] for n in "01"
        ]
        about = await page.locator("#about").inner_text()
        for fact in ("lexical", "float32", stream.settings.policy.digest, socket.gethostname()):
            assert fact in about

        assert here.complaints == []
        assert here.asked == {worker.url.removeprefix("http://")}

        await worker.kill()
        await expect(page.get_by_role("alert")).to_contain_text("No response from the worker since")


async def test_text_from_a_trace_never_becomes_markup(stage, visit):
    stage.metrics.stream.set_build_info("0", HOSTILE, HOSTILE, "cpu")
    stage.finish(0.2, text=HOSTILE, task_domain=HOSTILE)
    stage.finish(0.8, text=HOSTILE, task_domain=HOSTILE)
    stage.bury(text=HOSTILE)

    page = (here := await visit(stage.url)).page
    for name in ("Latest contributed traces", "Latest rejected traces"):
        await page.get_by_role("region", name=name).get_by_role("button", name="Breakdown").click()

    await expect(page.locator("#contribute-list caption")).to_contain_text("named kp:trace:<script>")
    await expect(page.locator("#contribute-list .reasons")).to_contain_text(
        "nearest earlier trace: kp:trace:<script>"
    )
    words = page.locator("#rejected-list .words")
    await expect(words).to_contain_text("<script>document.title='owned'</script><img src=x")
    await expect(words).to_contain_text("\\u{202e}\\u{0}")
    assert await page.title() == "knowledgepulse-worker"
    assert (
        await page.locator(":is(main, footer) :is(img, script, b b, iframe, a[href^='javascript'])").count()
        == 0
    )
    assert BIDI_OVERRIDE not in await page.locator("body").inner_text()
    assert here.complaints == []


async def test_hidden_content_does_not_reach_the_browser(stage, visit):
    stage.content = False
    stage.finish(text="kp:trace:secret", task_domain="secret")
    stage.finish(0.8, text="kp:trace:secret", task_domain="secret")
    stage.bury(text="secret")

    page = (await visit(stage.url)).page
    await page.locator("#rejected-list > li").click()
    await page.locator("#contribute-list > li").click()

    assert "secret" not in await page.content()
    await expect(page.locator("#rejected-list")).to_contain_text("0.362 < 0.50", use_inner_text=True)
    reasons = page.locator("#rejected-list .reasons")
    await expect(reasons).to_contain_text("nearest earlier trace: similarity 0.7500")
    await expect(reasons).to_contain_text("it falls short by 0.1375; any one of these would suffice:")
    await expect(page.locator("#contribute-list .reasons")).to_contain_text("similarity 0.7500")
    await expect(page.locator("#dead-list")).to_contain_text("not_json")
    await expect(page.locator("#content-note")).to_contain_text("web.show_content")


PARTS = [
    ["complexity", "0.5000", "× 0.25", "= 0.1250"],
    ["novelty", "0.2500", "× 0.35", "= 0.0875"],
    ["tool diversity", "1.0000", "× 0.15", "= 0.1500"],
    ["outcome confidence", "0.0000", "× 0.25", "= 0.0000"],
]


async def test_a_click_on_a_trace_shows_its_breakdown(stage, visit):
    stage.finish(overrides=("single_tool",))
    stage.finish(domain="legal")
    page = (here := await visit(stage.url)).page
    digest = stage.policy.digest
    expected = {
        "rejected": (
            f"policy {digest}, profile default",
            [
                ["sum", "0.3625"],
                ["override single_tool: one tool only: 0.1 less, at least 0"],
                ["score", "0.2625"],
                ["threshold", "0.5000"],
            ],
            [
                "it falls short by 0.2375; any one of these would suffice:",
                "novelty of 0.9286 instead of 0.2500",
                "outcome confidence of 0.9500 instead of 0.0000",
            ],
        ),
        "contribute": (
            f"policy {digest}, profile legal",
            [["score", "0.3625"], ["threshold", "0.2500"]],
            ["it passes by 0.1125"],
        ),
    }

    for name, (caption, totals, outcome) in expected.items():
        words, shown = page.locator(f"#{name}-list .words"), page.locator(f"#{name}-list .breakdown")
        await expect(shown).to_have_count(0)
        await words.click()

        await expect(shown.locator("caption")).to_have_text(caption)
        assert await cells(page, f"#{name}-list thead") == [["dimension", "value", "× weight", "= part"]]
        assert await cells(page, f"#{name}-list tbody") == PARTS
        assert await cells(page, f"#{name}-list tfoot") == totals
        assert await shown.locator(":is(p, li)").all_text_contents() == [
            "nearest earlier trace: kp:trace:1, similarity 0.7500",
            *outcome,
        ]

        await shown.click()  # to select a figure, say
        await expect(shown).to_be_visible()
        await words.click()
        await expect(shown).to_have_count(0)
    assert here.complaints == []


async def test_a_breakdown_opens_by_keyboard_and_the_list_waits_meanwhile(stage, visit):
    stage.finish(0.2, text="kp:trace:first")
    page = (await visit(stage.url)).page
    rows = page.locator("#rejected-list > li")
    button = rows.get_by_role("button", name="Breakdown of raw-traces/0/0")
    await expect(button).to_have_attribute("aria-expanded", "false")
    await button.focus()
    await page.keyboard.press("Enter")
    await expect(button).to_have_attribute("aria-expanded", "true")

    stage.finish(0.3, text="kp:trace:second")
    await expect(page.locator("#rejected-held")).to_be_visible()
    await expect(button).to_be_focused()
    await expect(rows).to_have_count(1)
    await page.keyboard.press("Space")
    await expect(page.locator(".breakdown")).to_have_count(0)
    await expect(button).to_be_focused()

    await page.keyboard.press("Tab")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("kp:trace:second")
    await expect(page.locator("#rejected-held")).to_be_hidden()


async def test_what_labels_say_of_the_policy_is_shown(stage, visit, tmp_path):
    page = (await visit(stage.url)).page
    await expect(page.locator("#evaluation")).to_be_hidden()

    file = tmp_path / "evaluation.json"
    stage.settings = Settings(web={"evaluation": str(file)})
    rows = page.locator("#evaluation-reading li")
    await expect(rows).to_have_text(["No evaluation yet."])
    code = {"traces": 84, "fair": [0.62, 0.55, 0.7]}
    fitted = {"labels": 140, "of": 140, "on": "2026-11-26", "auc": [0.68, 0.57, 0.77]}
    promise = {"outcome": "withdrawn", "least": 0.8, "share": None, "labels": 60, "until": None, "agents": {}}
    found = {"domains": {"code": code}, "fitted": {"customer_service": fitted}, "promises": {"code": promise}}
    file.write_text(json.dumps({"policy": stage.policy.digest} | found))
    withdrawn = "code: withdrawn: labels since then do not say that at least 80% of what passes "
    withdrawn += "are worth keeping"
    await expect(rows).to_have_text(
        [
            "code: AUC 0.62 (0.55 to 0.70) on 84 labels",
            "customer_service: no labels since its fit on 2026-11-26",
            withdrawn,
        ]
    )
    await expect(page.locator("#evaluation-at")).to_contain_text("evaluated")
    await expect(page.locator("#evaluation-at")).not_to_contain_text("an earlier policy")


async def test_what_the_registry_answered_is_shown(stage, visit):
    page = (await visit(stage.url)).page
    await expect(page.locator("#registry")).to_be_hidden()

    stage.settings = Settings(registry={"url": "http://localhost:1"})
    await expect(page.locator("#registry-reading")).to_have_text("None yet.")
    stage.metrics.recent.answers.update(refused=1, accepted=2)
    await expect(page.locator("#registry-reading")).to_have_text("2 accepted, 1 refused")


async def test_the_shadow_policy_shows_what_would_flip(stage, visit):
    """The stage's dimensions give 0.25 x 0.5 + 0.35 x 0.25 + 0.15 x 1 = 0.3625 under the default weights."""
    stage.shadow.in_force.shadow = Policy(threshold=0.3, domains={"legal": {"threshold": 0.4}})
    for score, domain in ((0.2, "default"), (0.45, "default"), (0.8, "default"), (0.6, "legal")):
        stage.finish(score, domain, text=HOSTILE)

    page = (here := await visit(stage.url)).page

    await expect(page.locator("#shadow-reading")).to_have_text(
        "75.0% of 4 traces would flip: 2 gained, 1 lost"
    )
    assert await cells(page, "#by-route") == [
        ["default threshold 0.5, shadow threshold 0.3", "3", "33.3% 1", "100.0% 3", "2", "0"],
        ["legal threshold 0.25, shadow threshold 0.4", "1", "100.0% 1", "0.0% 0", "0", "1"],
    ]
    flips = page.locator("#flips-list > li")
    assert await flips.count() == 3
    await expect(flips.first).to_contain_text("contribute → rejected")
    await expect(flips.first).to_contain_text("policy 0.600 ≥ 0.25; shadow 0.362 < 0.40")
    await expect(flips.first).to_contain_text("<script>document.title='owned'</script>")
    assert here.complaints == []


async def test_a_share_shows_its_cut_and_ranks_beside_a_shadow_policy_with_a_threshold(stage, visit):
    stage.policy = Policy(share=0.1)
    stage.shadow.in_force.policy = stage.policy
    stage.metrics.set_policy(stage.policy)
    stage.shadow.in_force.shadow = Policy(threshold=0.9)
    for number in range(40):
        stage.finish((number * 7 % 40) / 40)
    stage.finish(0.99)

    page = (here := await visit(stage.url)).page

    await expect(page.locator("#by-domain th")).to_have_text("defaultthe best 10%, now from 0.95")
    await expect(page.locator("#by-route th")).to_have_text("defaultthe best 10%, shadow threshold 0.9")
    await expect(page.locator("#contribute-list > li").first).to_contain_text("rank 1 of 20")
    await expect(page.locator("#chart")).to_contain_text("default now from 0.95")
    await expect(page.locator("#reading")).to_have_text("By the policy share of 10%, 14.6% pass: 6 of 41")
    await expect(page.locator("#contrast")).to_contain_text("so some passed below where it begins now")
    assert here.complaints == []


async def test_the_slider_works_by_keyboard_and_has_a_spoken_value(stage, visit):
    for score in (0.1, 0.49, 0.5, 0.9):
        stage.finish(score)
    page = (await visit(stage.url)).page
    slider = page.get_by_role("slider", name="Try another threshold")
    await expect(slider).to_have_attribute(
        "aria-valuetext", "at the policy threshold 0.5, 2 of 4 traces pass, 50.0%"
    )

    await slider.focus()
    await page.keyboard.press("ArrowLeft")
    await expect(slider).to_have_attribute("aria-valuetext", "at 0.49, 3 of 4 traces pass, 75.0%")
    await page.keyboard.press("End")
    await expect(slider).to_have_attribute("aria-valuetext", "at 1, 0 of 4 traces pass, 0.0%")
    await page.keyboard.press("Tab")  # the domain
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")

    await expect(slider).to_be_focused()
    await expect(slider).to_have_value("0.5")
    await expect(page.locator("#reading")).to_have_text("At the policy threshold 0.5, 50.0% pass: 2 of 4")


async def test_the_histogram_shows_the_selected_domain_and_its_threshold(stage, visit):
    for score in (0.1, 0.3, 0.6):
        stage.finish(score, "legal")
    stage.finish(0.4)
    page = (await visit(stage.url)).page
    chart = page.locator("#chart")
    await expect(chart).to_have_attribute(
        "aria-label", re.compile("Histogram of 4 scores from 0 to 1; legal threshold at 0.25, default thre")
    )
    assert await chart.locator("text.threshold").all_text_contents() == ["1", "2"]
    marks = page.locator("#marks > li")
    assert await marks.all_text_contents() == ["1 legal threshold 0.25", "2 default threshold 0.5"]
    reading = page.locator("#reading")  # each by its own domain's
    await expect(reading).to_have_text("At the thresholds of the policy, 50.0% pass: 2 of 4")

    await page.get_by_role("combobox", name="Domain").select_option("legal")

    assert await chart.locator("text.threshold").all_text_contents() == ["legal threshold 0.25"]
    await expect(page.locator("#marks")).to_be_hidden()
    assert await chart.locator("line.threshold").get_attribute("x1") == "25.0000%"
    assert await chart.locator("title").all_text_contents() == [
        "0.1 to 0.125: 1 trace, 0 pass",
        "0.3 to 0.325: 1 trace, 1 pass",
        "0.6 to 0.625: 1 trace, 1 pass",
    ]
    await expect(reading).to_have_text("At the policy threshold 0.25, 66.7% pass: 2 of 3")


async def test_all_controls_are_reachable_by_keyboard_and_named(stage, visit):
    for number in range(7):
        stage.finish(number / 20, text=f"kp:trace:{number}")
    stage.finish(0.8, text="kp:trace:7")
    page = (await visit(stage.url)).page
    reached = []
    for _ in range(15):
        await page.keyboard.press("Tab")
        reached.append(await page.evaluate(FOCUSED))
        if reached[-1] == "slider":
            await page.keyboard.press("ArrowLeft")  # now there is something to go back from

    assert reached == [
        "pause",
        "slider",
        "domain",
        "reset",
        "Histogram as a table",
        "partitions-scroll",
        "Breakdown of raw-traces/0/7",
        *(f"Breakdown of raw-traces/0/{offset}" for offset in (6, 5, 4, 3, 2)),
        "rejected-more",
        "/api/status",
        "/metrics",
    ]
    for role, names in {
        "button": ("Pause", "Reset to the policy", "Breakdown of raw-traces/0/7", "Show the last 7"),
        "region": ("Latest contributed traces", "Scores", "Latest rejected traces"),
        "img": ("Outputs in each of the last 60 seconds",),
    }.items():
        for name in names:
            assert await page.get_by_role(role, name=name).count() >= 1, (role, name)


async def test_phones_need_no_horizontal_scrolling(stage, visit):
    stage.shadow.in_force.shadow = Policy(threshold=0.1)
    stage.finish(text="kp:trace:" + "x" * 5000, task_domain="x" * 5000, overrides=("single_tool",))
    stage.finish(0.8, text="kp:trace:" + "x" * 5000)
    stage.bury(text="x" * 5000)

    page = (
        await visit(stage.url, viewport={"width": 320, "height": 700}, is_mobile=True, has_touch=True)
    ).page
    for name in ("contribute", "rejected"):
        await page.locator(f"#{name}-list").get_by_role("button").tap()
    await expect(page.locator(".breakdown")).to_have_count(2)

    for width in (320, 390, 768):
        await page.set_viewport_size({"width": width, "height": 700})
        assert await page.evaluate("document.documentElement.scrollWidth") == width


async def test_the_page_is_accessible_in_both_colours(stage, visit):
    stage.shadow.in_force.shadow = Policy(threshold=0.1)
    stage.finish(overrides=("single_tool",))
    stage.finish(0.8, "legal")
    stage.bury()
    page = (await visit(stage.url, color_scheme="light")).page
    await page.get_by_role("slider").fill("0.4")
    await page.locator("#rejected-list > li").click()

    assert await serious_findings(page) == []
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        contrasts = await page.evaluate(CONTRASTS)
        assert len(contrasts) > 100
        assert [contrast for contrast in contrasts if contrast[0] < 4.5] == []
    assert await serious_findings(page, COLOURS) == []


async def test_the_page_without_traces_is_accessible(stage, visit):
    page = (await visit(stage.url, viewport={"width": 390, "height": 844})).page
    assert await serious_findings(page) == []

    stage.diagnosis.observe(replace(WELL, leader_silence=60.0))
    await expect(page.get_by_role("status")).to_contain_text("Waiting for Kafka")
    assert await serious_findings(page) == []


async def test_the_page_shows_when_the_worker_stops_responding(stage, visit):
    stage.finish(0.2)
    page = (await visit(stage.url)).page
    alert = page.get_by_role("alert")
    state = page.locator("#state")
    await expect(state).to_have_text("refreshing")
    await expect(alert).to_be_hidden()

    stage.status = 500
    await expect(alert).to_contain_text("No response from the worker since")
    await expect(state).to_have_text("no response")

    stage.status = 200
    stage.finish(0.8)
    await expect(alert).to_be_hidden()
    await expect(page.locator("#reading")).to_have_text("At the policy threshold 0.5, 50.0% pass: 1 of 2")


async def test_a_paused_page_does_not_change_until_resumed(stage, visit):
    stage.finish(0.2)
    page = (await visit(stage.url)).page
    pause = page.get_by_role("button", name="Pause")
    await pause.click()
    await expect(pause).to_have_attribute("aria-pressed", "true")

    stage.finish(0.8)
    await page.evaluate("ask()")  # an answer that was under way
    await expect(page.locator("#reading")).to_have_text("At the policy threshold 0.5, 0.0% pass: 0 of 1")

    await pause.click()
    await expect(page.locator("#reading")).to_have_text("At the policy threshold 0.5, 50.0% pass: 1 of 2")


async def test_the_verdict_is_the_first_thing_on_the_page(stage, visit):
    """The page said "live" while Kafka was frozen."""
    page = (await visit(stage.url)).page
    verdict = page.get_by_role("status")
    await expect(verdict).to_contain_text("Healthy")

    stage.diagnosis.observe(replace(WELL, leader_silence=60.0))
    await expect(verdict).to_contain_text("Waiting for Kafka")
    await expect(verdict).to_contain_text("no answer from partition leaders for 60 s")
    await expect(verdict).to_contain_text("runbook: KpWaiting")
    await expect(verdict.get_by_role("link")).to_have_count(0)
    await expect(page.locator("#lag-more")).to_contain_text("as of the last fetch")
    await expect(page.locator("#state")).to_have_text("refreshing")


async def test_every_state_is_on_the_page_the_most_serious_first(stage, visit):
    """A refused edit of the policy stood behind dead letters, and was believed to be in force."""
    seen = replace(
        WELL,
        suspect_partitions=(2,),
        dead_letters=72,
        outcomes=90,
        publishing_throttled=42.0,
        has_foreign_member=True,
        policy_refused="policy.threshold: got 7",
        ends=(8e9, 8e9, 8e9),
        last_end="it was killed",
    )
    verdict = stage.diagnosis.observe(seen)
    page = (await visit(stage.url)).page

    lines = page.get_by_role("status").get_by_role("listitem")
    await expect(lines).to_have_count(len(verdict.findings))
    for line, finding in zip(await lines.all(), verdict.findings, strict=True):
        await expect(line).to_contain_text(f"{finding.state.heading}{finding.reason}since ")
        await expect(line).to_have_class(finding.state.severity)
        await expect(line).to_contain_text(f"runbook: {finding.runbook}")
    assert [finding.state for finding in verdict.findings] == [
        *(State.FOREIGN_MEMBER, State.POISON, State.THROTTLED, State.DEAD_LETTERS, State.RESTARTING),
        State.POLICY_EDIT_REFUSED,
    ]


async def test_a_page_that_is_opened_while_the_process_is_away_links_to_the_runbook(visit):
    """Its only data then is the verdict."""
    settings = WebSettings(port=free_ports(1)[0], runbook="https://example.com/runbook")
    async with serving(settings, "workers") as port:
        port.without_child(State.WAITING_FOR_KAFKA, "no broker answers")
        here = await visit(f"http://127.0.0.1:{settings.port}/", shown="#verdict")

        await expect(here.page.locator("#verdict")).to_contain_text("Waiting for Kafka")
        link = here.page.get_by_role("link", name="KpWaiting")
        await expect(link).to_have_attribute("href", "https://example.com/runbook#kpwaiting")


async def test_what_the_page_showed_survives_a_restart(stage, visit):
    """Each restart said "No trace yet", and a crash loop said nothing else."""
    stage.finish(0.2, text="kp:trace:before")
    stage.bury()
    stage.restart()
    page = (await visit(stage.url)).page

    await expect(page.locator("#before")).to_contain_text("has finished no record yet")
    await expect(page.locator("#first")).to_be_hidden()
    await expect(page.locator("#rejected-list")).to_contain_text("kp:trace:before")
    await expect(page.locator("#dead-list")).to_contain_text("not JSON")
    await expect(page.locator("#reading")).to_contain_text("0 of 1")
    await expect(page.locator("#buried")).to_have_text("1")

    stage.finish(0.3, text="kp:trace:after")
    await expect(page.locator("#before")).to_be_hidden()
    await expect(page.locator("#reading")).to_contain_text("0 of 2")
    await expect(page.locator("#rejected-list > li")).to_have_count(2)
    await expect(page.locator("#rejected-list")).to_contain_text("kp:trace:after")
    await expect(page.locator("#buried")).to_have_text("1")


async def test_a_page_that_is_opened_while_the_process_is_away_shows_what_it_showed_last(stage, visit):
    stage.finish(0.2, text="kp:trace:before")
    stage.status = 503
    here = await visit(stage.url)

    await expect(here.page.locator("#away")).to_contain_text("is away. The data below is from ")
    await expect(here.page.locator("#lost")).to_be_hidden()
    await expect(here.page.locator("#rejected-list")).to_contain_text("kp:trace:before")


async def test_replaced_records_are_told_above_everything_else(stage, visit):
    page = (await visit(stage.url)).page
    notice = page.locator("#truncated")
    await expect(notice).to_be_hidden()

    stage.metrics.recent.truncated(0, range(10, 20))
    stage.metrics.recent.truncated(3, range(7, 8))

    await expect(notice).to_contain_text("A leader election replaced 11 scored records of the raw topic")
    await expect(notice).to_contain_text("partition 0, offsets 10 to 19, found ")
    await expect(notice).to_contain_text("partition 3, offset 7, found ")
    await expect(notice).to_contain_text("runbook: KpRawTruncated")


async def test_offsets_that_no_worker_reads_are_told_with_the_reason(stage, visit):
    page = (await visit(stage.url)).page
    notice = page.locator("#skipped")
    await expect(notice).to_be_hidden()

    stage.metrics.recent.skipped(0, range(10, 20), "passed_over")
    stage.metrics.recent.skipped(3, range(7, 8), "deleted")

    await expect(notice).to_contain_text("11 offsets of the raw topic were not read")
    await expect(notice).to_contain_text(
        "partition 0, offsets 10 to 19, passed over by a position that no worker committed, found "
    )
    await expect(notice).to_contain_text("partition 3, offset 7, deleted before they were read, found ")
    await expect(notice).to_contain_text("runbook: KpOffsetsSkipped")


async def test_an_empty_page_says_how_to_begin(stage, visit):
    page = (await visit(stage.url)).page
    await expect(page.locator("#first-title")).to_have_text("No trace yet")
    await expect(page.locator("#first")).to_contain_text("kp-worker publish traces.jsonl")
    await expect(page.locator("#scores")).to_be_hidden()
    await expect(page.locator("#rejected")).to_be_hidden()

    stage.finish(0.2)
    await expect(page.locator("#first")).to_be_hidden()
    await expect(page.locator("#scores")).to_be_visible()
    await expect(page.locator("#rejected")).to_be_visible()


async def test_a_page_without_traces_tells_those_that_were_recovered(stage, visit):
    """It said "No trace yet" beside 465 of them."""
    stage.metrics.lanes.cache_size(0, 460)
    stage.metrics.lanes.cache_size(1, 5)
    page = (await visit(stage.url)).page

    await expect(page.locator("#first-title")).to_have_text(
        "Recovered 465 traces, and none since this process started"
    )
    await expect(page.locator("#first-cached")).to_have_text("The next traces are compared with them.")


async def test_dead_letters_are_told_by_reason_with_the_command_that_lists_them(stage, visit):
    stage.finish(0.2)
    stage.bury()
    page = (await visit(stage.url)).page

    await expect(page.locator("#buried-of")).to_have_text("Dead letters, last 15 min")
    await expect(page.locator("#buried")).to_have_text("1")
    await expect(page.locator("#buried-more")).to_have_text("1 not_json, 1 since the start")
    await expect(page.locator("#dead-commands")).to_have_text(
        "kp-worker dead-letters list --reason not_json --config worker.toml"
    )


async def test_the_nearest_trace_is_a_click_away(stage, visit):
    stage.finish(0.2, text="kp:trace:same")
    for number in range(7):
        stage.finish(0.3, text=f"kp:trace:{number}")
    stage.finish(0.2, text="kp:trace:same")
    page = (await visit(stage.url)).page

    await page.locator("#rejected-list > li").first.get_by_role("link", name="kp:trace:same").click()
    await expect(page.get_by_role("button", name="Breakdown of raw-traces/0/0")).to_be_focused()


async def test_a_phone_shows_verdict_rate_lag_and_dead_letters_first(stage, visit):
    stage.diagnosis.observe(replace(WELL, leader_silence=60.0))  # the longest verdict
    stage.finish(0.2)
    page = (await visit(stage.url, viewport={"width": 390, "height": 844}, is_mobile=True)).page

    for name in ("verdict", "rate", "lag", "buried"):
        box = await page.locator(f"#{name}").bounding_box()
        assert box["y"] + box["height"] <= 844, name


async def test_the_page_says_how_a_run_ended_and_whether_somebody_judged_it(stage, visit):
    for ending, judged in (("cut_off", False), ("answered", True), ("submitted", None), (None, None)):
        stage.finish(ending=ending, judged=judged)
    page = (await visit(stage.url)).page

    await expect(page.locator("#rejected-list .ended")).to_have_text(
        ["ending not told", "submitted", "answered, judged", "cut off, not judged"]
    )
