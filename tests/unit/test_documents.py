"""The documents' tables, links, commands and targets are the code's; tests/documents runs their blocks."""

from __future__ import annotations

import errno
import json
import os
import re
import tomllib
from datetime import date
from functools import cache
from importlib import import_module

import pytest
from prometheus_client import CollectorRegistry

import knowledgepulse_worker.scoring
from generator.tables import renewed
from knowledgepulse_schemas import DeadLetterHeaders
from knowledgepulse_schemas.dead_letter import FORMS, REASONS
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.status_data import StatusData
from knowledgepulse_worker.policy import REFERENCE_WEIGHTS, ROUTES, Policy
from knowledgepulse_worker.records.output_headers import HEADERS, ORIGINAL_TIMESTAMP, WRAPPING
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.scoring.overrides import EFFECTS
from knowledgepulse_worker.settings import Settings, sections
from support.commands import command
from support.documents import DOCUMENTS, ROOT, RUN, SHOWN, Reader, blocks, difference, read, table
from support.tool_metrics import TOOL_METRICS

REMOVED = {"limits.uncommitted_records", "kp_redelivered_total", "kp_publish_retries_total"}
"""Settings and metrics that are gone, which the documents about news name once more."""

NEWS = {"CHANGELOG.md", "docs/operators/upgrade.md"}


def removed_in(document):
    return REMOVED if document in NEWS else set()


@pytest.fixture(scope="module")
def metrics():
    """Return the names of all metrics, as they are exposed."""
    registries = [CollectorRegistry() for _ in range(1 + len(TOOL_METRICS))]
    Metrics(Policy(), 0.1, registries[0])
    for make, registry in zip(TOOL_METRICS.values(), registries[1:], strict=True):
        make(registry)
    return {name for registry in registries for name in registry._names_to_collectors}


def unknown(pattern, known):
    """Return what the documents name in a form, and what is not known, by document."""
    named = {document: set(re.findall(pattern, read(document))) for document in DOCUMENTS}
    assert any(named.values())
    return {
        document: left for document in DOCUMENTS if (left := named[document] - known - removed_in(document))
    }


def test_every_metric_that_is_named_is_there(metrics):
    assert REMOVED.isdisjoint(metrics)
    assert unknown(r"\bkp_[a-z_]+\b", metrics) == {}


def test_every_setting_that_is_named_is_there():
    """In the text; the blocks are run."""
    settings = {f"{name}.{key}" for name, model in sections().items() for key in model.model_fields}
    assert REMOVED.isdisjoint(settings)
    assert unknown(rf"`((?:{'|'.join(sections())})\.[a-z_]+)(?: = [^`]+)?`", settings) == {}


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if "<!-- generated:" in read(name)])
def test_generated_tables_are_up_to_date(document):
    assert read(document) == renewed(read(document)), "run `make tables`"


def test_the_headers_table_names_every_header():
    named = re.findall(
        r"^\| `([^`]+)`", "\n".join(table("docs/reference/headers.md", "Headers")), re.MULTILINE
    )
    dead_letter = [field.alias for field in DeadLetterHeaders.model_fields.values()]
    ours = [*HEADERS, WRAPPING, ORIGINAL_TIMESTAMP, "kp-redaction-error", "kp-completed-by"]
    assert named == [*ours, *dead_letter]


def test_the_reasons_table_has_every_reason():
    rows = [row.split("|")[1] for row in table("docs/reference/dead-letters.md", "Reasons and forms")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(REASONS)


def test_the_forms_table_has_every_form():
    rows = [row.split("|")[1] for row in table("docs/reference/dead-letters.md", "What the value is")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(FORMS)


def test_the_page_of_the_score_names_every_override_in_its_order():
    section = read("docs/score.md").split("## Overrides\n", 1)[1].split("\n## ")[0]
    assert re.findall(r"^\d\. `(\w+)`", section, re.MULTILINE) == list(EFFECTS)


def test_every_message_on_the_page_of_troubleshooting_is_one_of_the_workers():
    sources = [path.read_text() for path in (ROOT / "worker").rglob("*.py")]
    joined = re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))  # messages that are longer than a line
    for row in table("docs/troubleshooting.md", "By message"):
        for part in re.findall(r"`([^`]+)`", row)[0].split("…"):
            said = part.strip().removeprefix("kafka.").removesuffix(os.strerror(errno.ECONNREFUSED))
            assert said in joined, row


def test_the_status_table_names_every_member():
    named = [
        name
        for row in table("docs/reference/status.md", "Status JSON")
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    routes = [route.participle for route in ROUTES.values()]
    assert named == [
        name for field in StatusData.__struct_fields__ for name in (routes if field == "traces" else [field])
    ]


def test_the_trace_in_the_readme_is_one_of_the_demos_with_its_score():
    """What is left out is `…`; the blocks of the quickstart hold the figures."""
    before, after, *_ = (block.text for block in blocks("README.md") if block.tag == "text")
    traces = read("worker/knowledgepulse_worker/tools/demo/real_traces.jsonl").splitlines()
    rest = "".join(next(trace for trace in traces if "cd7202b4" in trace).split())
    for piece in "".join(before.split()).split("…"):
        assert piece in rest
        rest = rest.split(piece, 1)[1]
    score = json.loads(re.search(r"^kp-score: (.*)", after, re.MULTILINE | re.DOTALL)[1])
    assert list(score) == [
        name for name in Score.__struct_encode_fields__ if name not in ("withheld", "learned")
    ]
    weighted = sum(score[name] * weight for name, weight in REFERENCE_WEIGHTS["code"])
    assert weighted == pytest.approx(score["score"], abs=1e-4)
    assert f'"quality_score": {score["score"]}' in after
    shown = read("README.md")
    assert f"score {score['score']}: rank {score['rank']} of {score['of']} passes at share" in shown
    assert f"novelty            {score['novelty']:.4f} ×" in shown
    assert f"nearest earlier trace: {score['nearest'].removesuffix('…')}" in shown


def test_every_block_says_what_it_is():
    """Without a tag nobody would know whether to run it, or to compare it."""
    untagged = [
        f"{document}:{block.line}"
        for document in DOCUMENTS
        for block in blocks(document)
        if block.tag not in RUN | SHOWN
    ]
    assert untagged == []


@cache
def anchors(document):
    """The headings as Git hosts name them."""
    headings = re.findall(r"^#+ (.+)$", read(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(document, path, anchor):
    target = (ROOT / document).parent / path if path else ROOT / document
    return target.exists() and (not anchor or anchor in anchors(target.resolve().relative_to(ROOT)))


def test_every_link_into_the_project_leads_somewhere():
    links = [
        (document, path, anchor)
        for document in DOCUMENTS
        for path, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", read(document))
    ]
    assert links
    assert [link for link in links if not leads_somewhere(*link)] == []


def test_every_picture_is_on_a_page():
    pages = "".join(map(read, DOCUMENTS))

    assert [
        file.name for file in (ROOT / "docs/images").iterdir() if f"images/{file.name})" not in pages
    ] == []


def commands_in(document):
    """Commands in blocks and in the text, without what comes after a pipe or a redirection."""
    text = read(document)
    blocks_of_commands = [block.text for block in blocks(document) if block.tag == "sh"]
    return re.findall(r"^([a-z-]+ [^|>\n]+)", "\n".join(blocks_of_commands), re.MULTILINE) + re.findall(
        r"`((?:make|kp-worker) [^`]+)`", text
    )


def all_of(program):
    """Return where a program is called in the documents, and with which words."""
    return [
        (f"{document}: {line}", line.split()[1:])
        for document in DOCUMENTS
        for line in commands_in(document)
        if line.split()[0] == program
    ]


def test_every_make_target_that_is_named_is_there():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [line for line, words in all_of("make") if words[0] not in targets] == []


def test_every_extra_that_is_named_is_there():
    """pip only warns of an unknown one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert unknown(r"(?:\.|knowledgepulse-worker)\[(\w+)\]", project["optional-dependencies"].keys()) == {}


def test_every_option_that_is_named_is_there():
    for line, words in all_of("kp-worker"):
        parameters = command(*words).params
        options = {name for parameter in parameters for name in parameter.opts + parameter.secondary_opts}
        named = {word.split("=")[0] for word in words if word.startswith("--")}
        assert named <= options | {"--help"}, line


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("4 traces", "4  traces\n", True),
        ("4 traces", "5 traces", False),
        ("score 0.900 ...", "score 0.901 passes", True),
        ("score 0.900 ...", "score 0.950 passes", False),
        ("first\n...\nlast", "first\nsecond\nthird\nlast", True),
        ("first\n...\nlast", "first\nlast", True),
        ("first\n...\nlast", "first\nlast but one", False),
        ("kp:trace:... ok", "kp:trace:17 ok", True),
    ],
)
def test_outputs_are_compared_but_for_what_is_left_out(shown, printed, same):
    assert (difference(shown, printed) is None) == same


@pytest.mark.parametrize(
    "wrong",
    [
        "```ruby\nputs 1\n```\n",
        "```\nkp-worker run\n```\n",
        "```json\n{}\n```\n",
        "```sh\nfalse | true\n```\n",
        "```python\nraise ValueError\n```\n",
        "```toml\n[kafka]\nservers = 1\n```\n",
        "```sh\necho 1\n```\n\n```output\n2\n```\n",
    ],
)
def test_a_block_that_does_not_do_what_it_says_is_found(wrong, tmp_path, monkeypatch):
    monkeypatch.setattr("support.documents.read", lambda document: wrong)

    with pytest.raises(AssertionError, match=r"^wrong\.md:\d+: "):
        Reader(tmp_path, {}, {}).read("wrong.md")


def test_the_scorer_in_the_package_docstring_is_public():
    assert "Scorer" in knowledgepulse_worker.__all__


def test_every_example_of_a_consumer_reads_committed_records():
    """The client's default would also show the records of aborted transactions."""
    for document, block in ((name, block) for name in DOCUMENTS for block in blocks(name)):
        consumers = re.findall(r"AIOKafkaConsumer\((.*?)\n    \)", block.text, re.DOTALL)
        assert len(consumers) == block.text.count("AIOKafkaConsumer("), document
        assert all('isolation_level="read_committed"' in consumer for consumer in consumers), document


FIGURES = tomllib.loads((ROOT / "docs/figures.toml").read_text(encoding="utf-8"))
FIGURED = [
    name for name in DOCUMENTS if not name.startswith(("tests/", "deploy/")) and name != "CHANGELOG.md"
]
"""The changelog is history; the tests' own documents are reports of studies, each with its method."""

QUANTITY = re.compile(
    r"\d[\d,.]* ?(?:(?:records|traces|texts|requests)/s|[kMGT]i?B(?:/s)?\b|ms\b|µs\b|core-hours?\b)"
)
GENERATED = re.compile(r"^<!-- generated: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
UNITS = {"ms": 1e-3, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def quantities(page):
    return set(QUANTITY.findall(GENERATED.sub("", read(page))))


@pytest.mark.parametrize("page", FIGURED)
def test_a_page_gives_no_figure_that_was_not_measured(page):
    measured = {value for run in FIGURES["runs"] if page in run["pages"] for value in run["values"]}

    assert quantities(page) - FIGURES["limits"].keys() <= measured, "add them to docs/figures.toml"


@pytest.mark.parametrize("run", FIGURES["runs"], ids=lambda run: run["command"])
def test_a_figure_says_where_it_comes_from_and_is_quoted(run):
    assert run["machine"] in FIGURES["machines"]
    assert run["measured"] <= date.today()  # noqa: DTZ011  a day, not a time
    assert run["commit"]
    assert run["values"].keys() <= set().union(*map(quantities, run["pages"]))


@pytest.mark.parametrize(("text", "source"), FIGURES["limits"].items())
def test_a_limit_is_that_of_its_setting_or_constant(text, source):
    number, unit = text.split()
    if ":" in source:
        module, name = source.split(":")
        value = getattr(import_module(module), name)
    else:
        section, name = source.split(".")
        value = getattr(getattr(Settings(), section), name)
    assert float(number) * UNITS[unit] == pytest.approx(value)


def test_a_default_in_the_text_is_that_of_its_setting():
    settings = Settings()
    pages = [name for name in FIGURED if name not in NEWS]
    told = [
        each
        for page in pages
        for each in re.findall(r"`([a-z]+)\.([a-z_]+)`, ([\d.]+) s by default", read(page))
    ]
    assert told
    for section, name, value in told:
        assert getattr(getattr(settings, section), name) == pytest.approx(float(value)), name


def test_the_home_page_tells_the_default_commit_intervals():
    kafka = Settings().kafka
    assert f"at most\nevery {kafka.commit_min_interval:g} s, the worker commits" in read("README.md")
    assert f"up to {kafka.commit_interval:g} s after its score" in read("README.md")
