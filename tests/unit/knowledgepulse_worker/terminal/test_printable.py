"""Messages that quote what strangers wrote."""

from __future__ import annotations

from knowledgepulse_worker.terminal.printable import printable_line, printable_lines


def test_a_line_is_one_line_that_controls_no_terminal():
    assert printable_line("a\nb\x1b[2J\u202e") == "a\\nb\\x1b[2J\\u202e"


def test_a_long_line_keeps_its_place_and_what_is_accepted():
    line = printable_line(f"w.toml: limits.budget: got {'x' * 100_000}; should be a number")

    assert line.startswith("w.toml: limits.budget: got xxx")
    assert line.endswith("xxx; should be a number")
    assert len(line) < 1_100


def test_very_many_problems_are_counted():
    lines = printable_lines("\n".join(f"w.toml: {number}" for number in range(2_000))).split("\n")

    assert lines[0] == "w.toml: 0"
    assert lines[-1] == "and 1,950 more lines"
