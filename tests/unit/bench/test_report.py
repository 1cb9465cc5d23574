"""Table, JSON and plots contain the results, and no more."""

import json

from rich.console import Console

from bench.measure import ENOUGH, TIMES, Figure, Section
from bench.report import RESULTS, number, show, write

HEADER = {"CPU": "a [fast] one"}


def section():
    return Section(
        "cheap",
        "What is cheap",
        [
            Figure("a ratio", TIMES, [0.5, 0.75, 1.0], reach="0.75 at least"),
            Figure("few samples", "ms", [1.0, 2.0, 3.0], "samples"),
            Figure("many samples", "ms", [5.0] * ENOUGH, "samples"),
            Figure("no samples", "ms", [], "samples"),
        ],
        ["measured [quickly]"],
    )


def test_the_table_has_a_row_per_figure_and_p99_only_with_enough_samples():
    console = Console(record=True, width=160)
    show(console, HEADER, [section()])
    lines = console.export_text().splitlines()

    def cells(what):
        [line] = [line for line in lines if f" {what} " in line]
        return [cell.strip() for cell in line.strip("│").split("│")]

    assert cells("a ratio") == ["a ratio", "0.75", "0.50", "1.00", "-", "3", TIMES, "0.75 at least"]
    assert cells("few samples") == ["few samples", "2.00", "1.00", "3.00", "-", "3", "ms", ""]
    assert cells("many samples") == ["many samples", "5.00", "5.00", "5.00", "5.00", str(ENOUGH), "ms", ""]
    assert cells("no samples")[5] == "0"
    assert any("a [fast] one" in line for line in lines)
    assert any("measured [quickly]" in line for line in lines)


def test_the_json_contains_all_rounds_but_no_raw_samples(tmp_path):
    write(tmp_path / "new", HEADER, [section()])
    data = json.loads((tmp_path / "new" / RESULTS).read_text())

    ratio, few, many, none = data["sections"][0]["figures"]
    assert ratio["rounds"] == [0.5, 0.75, 1.0]
    assert few["p99"] is None
    assert many["p99"] == 5.0
    assert none["median"] is None
    assert "rounds" not in many
    assert data["header"] == HEADER


def test_numbers_have_significant_digits_only():
    assert [number(one) for one in (None, 0.756, 12.34, 123.4, 12345.6)] == [
        "-",
        "0.76",
        "12.3",
        "123",
        "12,346",
    ]
