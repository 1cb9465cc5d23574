"""The page that `kp-worker score --html` writes, in a real browser: one file that asks for nothing."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import expect

from knowledgepulse_worker import score_traces
from knowledgepulse_worker.policy import places
from knowledgepulse_worker.tools.score.scores_page import BEST
from support.accessibility import COLOURS, serious_findings
from support.contrasts import CONTRASTS

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]  # one browser for all

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202e"
)
VIEWS = (("", "#rows tr >> nth=0"), ("#3", "#run section >> nth=0"))
SECRET = "The safe opens with 4711"


@pytest.fixture(scope="module")
def scores(real_traces):
    hostile = json.loads(real_traces[20])
    hostile["task"]["objective"] = hostile["steps"][0]["content"] = HOSTILE
    return score_traces([*real_traces[:150], hostile])


@pytest.fixture(scope="module")
def address(scores, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "scores.html"
    scores.save(file)
    return file.as_uri()


@pytest.fixture
def opened(address, visit):
    """Open the page from its file: `await opened("#3", color_scheme="dark")`."""

    async def open_page(fragment="", shown="#rows tr >> nth=0", **context):
        return await visit(f"{address}{fragment}", shown, **context)

    return open_page


async def test_the_page_shows_all_runs_and_asks_for_nothing(opened, scores):
    here = await opened()
    page = here.page

    await expect(page.locator("#title")).to_have_text("Scores of 151 runs")
    await expect(page.locator("#runs-of")).to_contain_text("151 of 151")
    best = scores.records[scores.order()[0]]
    await expect(page.locator("#rows tr >> nth=0")).to_contain_text(f"{best.score.quality_score:.4f}")
    passing = len(scores.passing(scores.order()))
    await expect(page.locator("#reading")).to_contain_text(f"{passing} of 151 runs pass by a share of 20%")
    assert here.asked <= {""}
    assert here.complaints == []


async def test_the_slider_tries_a_share_and_a_threshold(opened, scores):
    page = (await opened()).page
    by_domain = {}
    for record in scores.records:
        by_domain.setdefault(record.score.domain, []).append(record.score.quality_score)

    for share in (0.05, 0.33, 1.0):
        await page.locator("#slider").fill(str(share))
        passing = sum(places(share, len(values)) for values in by_domain.values())
        await expect(page.locator("#reading")).to_contain_text(f"{passing} of 151 runs pass")
    await page.locator("#mode").select_option("threshold")
    await page.locator("#slider").fill("0.4")
    passing = sum(value >= 0.4 for values in by_domain.values() for value in values)
    await expect(page.locator("#reading")).to_contain_text(
        f"{passing} of 151 runs pass at a threshold of 0.4"
    )
    await page.get_by_text("only what passes").click()
    await expect(page.locator("#runs-of")).to_contain_text(f"{passing} of 151")
    await page.locator("#reset").click()
    await expect(page.locator("#reading")).to_contain_text("by a share of 20%")


async def test_the_table_is_searched_and_sorted(opened, scores):
    page = (await opened()).page

    await page.locator("#search").fill("document.title")
    await expect(page.locator("#runs-of")).to_contain_text("1 of 151")
    await page.locator("#search").fill("")
    await page.get_by_role("button", name="steps").click()
    most = max(record.counts.steps for record in scores.records)
    await expect(page.locator("#rows tr >> nth=0 >> .steps-of")).to_have_text(str(most))
    await page.locator("#more").click()
    await expect(page.locator("#rows tr")).to_have_count(151)


async def test_a_run_is_read_step_by_step_beside_its_nearest(opened, scores):
    at = next(at for at in scores.order() if scores.records[at].score.nearest)
    record, trace = scores.records[at], json.loads(scores.value(at))
    here = await opened()
    page = here.page

    await page.locator(f'#rows a[href="#{at}"]').click()

    mine, nearest = page.locator(".sides section").all_inner_texts, page.locator(".sides section >> nth=1")
    assert len(await mine()) == 2
    await expect(page.locator(".sides section >> nth=0 >> .step")).to_have_count(len(trace["steps"]))
    earlier = [each.id for each in scores.records].index(record.score.nearest)
    await expect(nearest).to_contain_text(f"{scores.records[earlier].score.quality_score:.4f}")
    gave = await page.locator(".why tbody tr td:nth-child(2)").all_inner_texts()
    assert gave == [f"{value:.4f}" for value in vars_of(record.score.dimensions)]
    await page.get_by_role("button", name="Open the nearest").click()
    await expect(page.locator("#run-title")).to_contain_text(
        f"{scores.records[earlier].score.quality_score:.4f}"
    )
    await page.go_back()
    await page.get_by_role("button", name="All runs").click()
    await expect(page.locator("#overview")).to_be_visible()
    assert here.complaints == []


def vars_of(dimensions):
    return [
        dimensions.complexity,
        dimensions.novelty,
        dimensions.tool_diversity,
        dimensions.outcome_confidence,
    ]


async def test_no_text_of_a_run_becomes_markup(opened, scores):
    here = await opened(f"#{len(scores.records) - 1}", "#run section >> nth=0")

    await expect(here.page.locator("#run")).to_contain_text("document.title='owned'")
    assert await here.page.title() == "Scores of runs"
    assert await here.page.locator("#run img").count() == 0
    assert "\\u{202e}" in await here.page.locator("#run").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everybody_can_read_it(opened, scheme):
    page = (await opened(color_scheme=scheme)).page

    for fragment, shown in VIEWS:
        await page.evaluate("fragment => { location.hash = fragment; }", fragment)
        await page.locator(shown).wait_for()
        assert await serious_findings(page, COLOURS if scheme == "dark" else ()) == []
        assert [told for ratio, told in await page.evaluate(CONTRASTS) if ratio < 4.5] == []


async def test_it_fits_a_phone(opened):
    page = (await opened(viewport={"width": 320, "height": 800})).page

    for fragment, shown in VIEWS:
        await page.evaluate("fragment => { location.hash = fragment; }", fragment)
        await page.locator(shown).wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth") == 320


async def test_without_content_there_is_no_text_and_no_name(real_traces, tmp_path, visit):
    trace = json.loads(real_traces[0])
    trace["task"]["objective"] = trace["steps"][0]["content"] = trace["outcome"]["result_summary"] = SECRET
    trace["steps"][0] |= {"tool": {"name": SECRET}, "input": {SECRET: SECRET}, "output_summary": SECRET}
    trace["metadata"]["agent_id"] = trace["id"] = f"kp:trace:{SECRET}"
    scores = score_traces([trace, real_traces[1]])
    scores.save(tmp_path / "scores.html", content=False)

    here = await visit(f"{(tmp_path / 'scores.html').as_uri()}#0", "#run section >> nth=0")

    assert SECRET in scores.html()
    assert SECRET not in (tmp_path / "scores.html").read_text("utf-8")
    await expect(here.page.locator(".sides section >> nth=0 >> .step")).to_have_count(len(trace["steps"]))
    assert here.complaints == []


@pytest.mark.slow
async def test_ten_thousand_runs_fit_a_page(scores, real_traces, tmp_path, visit):
    """All are in the table; the best, their nearest and a sample have their steps."""
    many = score_traces([])
    values = [(scores.records[at % 151], scores.value(at % 151).strip()) for at in range(10_000)]
    for record, value in values:
        many.add(record, value)
    file = tmp_path / "scores.html"
    many.save(file)

    page = (await visit(file.as_uri(), "#rows tr >> nth=0")).page

    assert file.stat().st_size <= 25e6
    await expect(page.locator("#title")).to_have_text("Scores of 10,000 runs")
    steps = await page.locator('script[id^="run-"]').count()
    assert steps > BEST
    await page.locator("#rows a >> nth=0").click()
    assert await page.locator(".sides section >> nth=0 >> .step").count() > 0


async def test_a_notebook_shows_the_same_page_in_a_frame(scores, tmp_path, visit):
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><main>{scores._repr_html_()}</main>", encoding="utf-8")

    here = await visit(file.as_uri(), "iframe")

    frame = here.page.frame_locator("iframe")
    await expect(frame.locator("#title")).to_have_text("Scores of 151 runs")
    assert await here.page.title() != "owned"
