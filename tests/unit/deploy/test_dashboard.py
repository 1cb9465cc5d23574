"""The dashboard has Grafana's schema and queries existing series of the provisioned datasource."""

import json
import re

import pytest

OUTSIDE_THE_SCHEMA = {"definition", "expr", "refId", "textFormat", "titleFormat"}
"""Members of annotations and variables that only the data source's plugin knows."""
TARGETS_OWN = {"instance", "job"}
"""Labels added by Prometheus."""


@pytest.fixture(scope="module")
def queries(dashboard, panels):
    """Return the queries of panels and annotations with their legends."""
    return [
        *(
            (target["expr"], target.get("legendFormat", ""))
            for panel in panels
            for target in panel["targets"]
        ),
        *(
            (annotation["target"]["expr"], annotation["textFormat"])
            for annotation in dashboard["annotations"]["list"]
        ),
    ]


def members(value, *path):
    """Yield every leaf of a JSON document with its path."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from members(item, *path, key)
    else:
        yield path, repr(value)


def test_every_member_is_in_grafanas_schema(dashboard):
    """Grafana ignores a misspelled member; its SDK drops it when it parses the dashboard."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    parsed = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))

    dropped = {path for path, _ in set(members(dashboard)) - set(members(parsed))}
    known = {path for path in dropped if path[0] != "panels" and path[-1] in OUTSIDE_THE_SCHEMA}
    assert dropped - known == set()


@pytest.fixture(scope="module")
def every_label_of(labels_of, span_labels_of):
    """Return the labels of each series of workers and of the processes beside them, by name."""
    return labels_of | span_labels_of


def exposed_in(expr):
    return set(re.findall(r"\bkp_\w+", expr))


def test_queries_use_only_series_that_are_exposed(queries, every_label_of):
    asked = set().union(*(exposed_in(expr) for expr, _ in queries))

    assert asked
    assert asked - every_label_of.keys() == set()


def test_queries_group_by_existing_labels(queries, every_label_of):
    """Grouping by an unknown label is no error: everything is summed, and the panel looks right."""
    for expr, legend in queries:
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]+)\)", expr))))
        shown = set(re.findall(r"{{(\w+)}}", legend))

        assert shown <= grouped, expr
        for name in exposed_in(expr):
            assert grouped <= every_label_of[name] | TARGETS_OWN, expr


def test_every_metric_is_shown(queries, every_label_of):
    """A metric that nobody sees is not worth its series."""
    shown = set().union(*(exposed_in(expr) for expr, _ in queries))
    parts = re.compile(r"_(bucket|count|sum)$")

    exposed = {parts.sub("", name) for name in every_label_of if name.startswith("kp_")}
    assert exposed - {parts.sub("", name) for name in shown} == set()


def test_panels_are_distinct_and_do_not_overlap(dashboard):
    panels = dashboard["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} == set(range(24))


def test_panels_use_the_provisioned_datasource(dashboard, panels, datasource):
    (chosen, *variables) = dashboard["templating"]["list"]
    asked = [part["datasource"] for part in (*panels, *dashboard["annotations"]["list"], *variables)]

    assert (chosen["type"], chosen["query"]) == ("datasource", datasource["type"])
    assert chosen["current"]["value"] == datasource["uid"]
    expected = {"type": datasource["type"], "uid": f"${{{chosen['name']}}}"}
    assert [source for source in asked if source != expected] == []


def test_every_query_is_of_one_group_of_workers(queries):
    """Two groups on one Prometheus were added up."""
    series = re.compile(r"\b(kp[_:][\w:]+)(\{[^}]*\})?")
    found = [match for expr, _ in queries for match in series.finditer(expr)]

    assert found
    assert [match[1] for match in found if 'group="$group"' not in (match[2] or "")] == []


def test_every_query_variable_is_defined(dashboard, queries):
    """Undefined variables are sent literally, and match nothing."""
    own = {variable["name"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"}
    used = {name for expr, _ in queries for name in re.findall(r"\$(\w+)", expr)}

    assert used == own | {"__interval", "__rate_interval", "__range"}
