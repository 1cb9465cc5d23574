"""The site's generated pages have everything that the code has, and its links are checked."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from itertools import chain

import pytest
from prometheus_client import CollectorRegistry

from generator import commands, metrics, python, settings, tables
from generator.links import broken_links
from generator.llms import NoSentenceError, llms_text
from generator.staging import documents, page_of, stage
from generator.versions import add_version
from knowledgepulse_worker.cli.entry import main
from knowledgepulse_worker.settings import sections
from support.documents import DOCUMENTS
from support.tool_metrics import TOOL_METRICS


def headings(page):
    return re.findall(r"^#+ `?([^`{\n]+?)`?(?: {.*)?$", page, re.MULTILINE)


def test_the_page_of_settings_has_every_setting():
    wanted = {f"{name}.{key}" for name, model in sections().items() for key in model.model_fields}
    assert wanted <= set(headings(settings.page()))


def test_a_setting_has_its_type_default_and_variable():
    described = settings.page().split("### `kafka.session_timeout`")[1].split("###")[0]
    assert "- Type: number, at least 1 and at most 80" in described
    assert "- Default: `10.0`" in described
    assert "- Environment: `KP_KAFKA__SESSION_TIMEOUT`" in described


def test_the_page_of_metrics_has_the_metrics_of_every_process():
    found = set(re.findall(r"^\| `(kp_\w+)` ", metrics.page(), re.MULTILINE))
    for make in [*metrics.PROCESSES.values(), *TOOL_METRICS.values()]:
        make(registry := CollectorRegistry())
        assert {family.name for family in registry.collect()} <= {
            name.removesuffix("_total") for name in found
        }


def test_a_metric_has_its_type_and_labels_also_if_it_has_no_sample():
    assert "| `kp_quality_score` | histogram | `domain`, `outcome` |" in metrics.page()
    assert "| `kp_dead_letters_total` | counter | `reason` |" in metrics.page()


def test_the_page_of_commands_has_every_command_that_is_not_hidden():
    wanted = {f"kp-worker {name}" for name, command in main.commands.items() if not command.hidden}
    found = set(headings(commands.page()))
    assert wanted <= found
    assert "kp-worker policy tune" in found
    assert "kp-worker work" not in found


def test_the_page_of_the_python_api_has_every_public_name():
    directives = re.findall(r"^::: (\S+)$", python.directives(), re.MULTILINE)
    for name, names in python.PUBLIC.items():
        public = set(names or importlib.import_module(name).__all__) - {"__version__"}
        assert public <= set(re.findall(r"^\| `(\w+)` ", python.page(), re.MULTILINE))
        assert {f"{name}.{member}" for member in public} <= set(directives)


def test_generated_parts_are_as_the_code_has_them_and_the_rest_stays():
    written = tables.renewed("before\n<!-- generated: python -->\nthe former table\n<!-- end -->\nafter\n")

    assert "| `Scorer` | Scores traces in order" in written
    assert "the former table" not in written
    assert written.startswith("before\n")
    assert written.endswith("\n<!-- end -->\nafter\n")
    assert tables.renewed(written) == written


def test_the_site_has_every_document():
    assert sorted(documents()) == sorted(DOCUMENTS)


def test_the_site_has_no_marks_and_links_follow_their_pages(tmp_path):
    stage(tmp_path)

    pages = {str(path.relative_to(tmp_path / "pages")): path.read_text() for path in tmp_path.rglob("*.md")}
    assert not [name for name, text in pages.items() if "<!-- generated" in text]
    assert "::: knowledgepulse_worker.Scorer" in pages["reference/python.md"]
    assert "](operators/install.md)" in pages["index.md"], "the README is the site's home"
    assert "](../project/tests/chaos/index.md)" in pages["operators/failures.md"]
    assert "](../../../operators/runbook.md#held_back)" in pages["project/tests/chaos/index.md"]
    assert (tmp_path / "pages" / page_of("deploy/prometheus/alerts.yml")).exists()
    assert not list(tmp_path.rglob("*.html")), "the worker's own pages work only on a worker"


def test_a_role_of_sphinx_is_shown_as_code():
    assert python.ROLE.sub(r"`\1`", "see :class:`~a.Scorer` and :func:`b`") == "see `a.Scorer` and `b`"


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="gone.html">', "page.html: broken link: gone.html"),
        ('<a href="page.html#gone">', "page.html: no such section: page.html#gone"),
        ('<a href="#gone">', "page.html: no such section: #gone"),
        ('<img src="gone.png">', "page.html: broken link: gone.png"),
        (
            '<script src="https://cdn.example/a.js">',
            "page.html: is loaded from elsewhere: https://cdn.example/a.js",
        ),
    ],
)
def test_a_link_that_leads_nowhere_is_found(html, problem, tmp_path):
    (tmp_path / "page.html").write_text(
        f'<h1 id="here"><a href="#here"></a></h1><a href="https://example.org">{html}'
    )

    assert broken_links(tmp_path) == [problem]


def test_llms_txt_has_each_page_of_the_navigation_with_a_sentence(tmp_path):
    stage(tmp_path)
    nav = tomllib.loads((tmp_path / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    paths = [
        path for entry in nav for path in ([entry] if isinstance(entry, str) else chain(*entry.values()))
    ]

    lines = llms_text(tmp_path).splitlines()

    assert lines[0] == "# knowledgepulse-worker"
    assert lines[2].startswith("> Scores ")
    assert [line for line in lines if line.startswith("## ")][1:] == [
        f"## {section}" for entry in nav if isinstance(entry, dict) for section in entry
    ]
    links = [
        re.fullmatch(r"- \[[^]]+\]\((.+)\.html\): .+[.?]", line) for line in lines if line.startswith("-")
    ]
    assert [link and f"{link[1]}.md" for link in links] == paths
    assert all((tmp_path / "pages" / path).is_file() for path in paths)
    assert "- [The score](score.html): Every trace gets a score from 0 to 1." in lines


def test_a_page_without_a_sentence_is_named(tmp_path):
    stage(tmp_path)
    (tmp_path / "pages/score.md").write_text("# The score\n\n| a | table |\n", encoding="utf-8")

    with pytest.raises(NoSentenceError, match=r"^score\.md: has no title, or no sentence"):
        llms_text(tmp_path)


def test_a_version_takes_its_place_among_the_others(tmp_path):
    built, site = tmp_path / "built", tmp_path / "site"
    (built / "reference").mkdir(parents=True)
    (built / "llms.txt").write_text("- [Page](page.html): It is one.\n", encoding="utf-8")
    for version in ("0.9.0", "0.10.0", "0.9.0"):
        add_version(built, site, version)

    listed = json.loads((site / "versions.json").read_text(encoding="utf-8"))
    assert [(each["version"], each["aliases"]) for each in listed] == [("0.10.0", ["latest"]), ("0.9.0", [])]
    assert "url=0.10.0/index.html" in (site / "index.html").read_text(encoding="utf-8")
    assert "(0.10.0/page.html)" in (site / "llms.txt").read_text(encoding="utf-8")
    assert (site / "0.9.0/reference").is_dir()
