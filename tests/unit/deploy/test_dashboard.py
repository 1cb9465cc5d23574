"""The dashboard asks the provisioned datasource for what workers expose, and each panel has its place."""

import re

import pytest

TARGETS_OWN = {"instance", "job"}
"""The labels that Prometheus adds to what a worker exposes."""


@pytest.fixture(scope="module")
def queries(dashboard, panels):
    """The queries of panels and annotations, each with what names its results."""
    return [
        *(
            (target["expr"], target.get("legendFormat", ""))
            for panel in panels
            for target in panel["targets"]
        ),
        *((one["target"]["expr"], one["textFormat"]) for one in dashboard["annotations"]["list"]),
    ]


def exposed_in(expr):
    return set(re.findall(r"\bkp_\w+", expr))


def test_it_asks_for_series_that_a_worker_exposes(queries, labels_of):
    asked = set().union(*(exposed_in(expr) for expr, _ in queries))

    assert asked
    assert asked - labels_of.keys() == set()


def test_it_groups_by_labels_that_the_series_have(queries, labels_of):
    """Grouping by a label that is not there is no error: all is added up, and the panel looks right."""
    for expr, legend in queries:
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]+)\)", expr))))
        shown = set(re.findall(r"{{(\w+)}}", legend))

        assert shown <= grouped, expr
        for name in exposed_in(expr):
            assert grouped <= labels_of[name] | TARGETS_OWN, expr


def test_everything_that_a_worker_exposes_is_shown(queries, labels_of):
    """A metric that nobody looks at is not worth its series."""
    shown = set().union(*(exposed_in(expr) for expr, _ in queries))
    parts = re.compile(r"_(bucket|count|sum)$")

    exposed = {parts.sub("", name) for name in labels_of if name.startswith("kp_")}
    assert exposed - {parts.sub("", name) for name in shown} == set()


def test_panels_are_told_apart_and_do_not_overlap(dashboard):
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


def test_it_asks_the_datasource_that_is_provisioned(dashboard, panels, datasource):
    asking = [*panels, *dashboard["annotations"]["list"], *dashboard["templating"]["list"]]
    asked = [part["datasource"] for part in asking]

    assert [one for one in asked if one != {"type": datasource["type"], "uid": datasource["uid"]}] == []


def test_every_variable_in_a_query_is_one_of_the_dashboards_or_of_grafanas(dashboard, queries):
    """One that is not there is sent as it stands, and finds nothing."""
    own = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = {name for expr, _ in queries for name in re.findall(r"\$(\w+)", expr)}

    assert used == own | {"__interval", "__rate_interval", "__range"}
