"""Times, ages, sources and positions on the command line."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from knowledgepulse_worker.tools.terminal.arguments import InputFile, Moment, PartitionOffset, TopicPart
from support.letters import NOON


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2026-01-31", NOON.replace(hour=0)),
        ("2026-01-31T12:00", NOON),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T13:00+01:00", NOON),
    ],
)
def test_a_date_time_without_an_offset_is_utc(written, moment):
    assert Moment().convert(written, None, None) == moment


@pytest.mark.parametrize(
    ("written", "age"),
    [
        ("90s", {"seconds": 90}),
        ("5m", {"minutes": 5}),
        ("2h", {"hours": 2}),
        ("1w", {"weeks": 1}),
    ],
)
def test_an_age_is_relative_to_now(written, age):
    before = datetime.now(UTC)
    moment = Moment().convert(written, None, None)
    assert before <= moment + timedelta(**age) <= datetime.now(UTC)


@pytest.mark.parametrize("written", ["", "2", "h", "-2h", "2y", "1.5h", "yesterday", "2026-13-01", "999999w"])
def test_rejects_an_invalid_time(written):
    with pytest.raises(click.BadParameter, match="neither a date-time"):
        Moment().convert(written, None, None)


def test_parses_sources_and_positions():
    assert TopicPart().convert("raw-traces", None, None) == ("raw-traces",)
    assert TopicPart().convert("raw-traces/3", None, None) == ("raw-traces", 3)
    assert TopicPart().convert("raw-traces/3/17", None, None) == ("raw-traces", 3, 17)
    assert PartitionOffset().convert("3/17", None, None) == (3, 17)


@pytest.mark.parametrize("written", ["", "/1", "a/b", "a/1/", "a/1/2/3", "a/-1", "a b"])
def test_rejects_an_invalid_source(written):
    with pytest.raises(click.BadParameter, match="raw-traces/0/17"):
        TopicPart().convert(written, None, None)


@pytest.mark.parametrize("written", ["", "1", "a/1/2", "1/", "1/-1", "dead-letter/0/1"])
def test_rejects_an_invalid_position(written):
    with pytest.raises(click.BadParameter, match="0/17"):
        PartitionOffset().convert(written, None, None)


def test_an_address_in_place_of_a_file_names_the_commands_that_read_a_backend():
    """`score --from phoenix http://localhost:6006` said that this file does not exist."""
    with pytest.raises(click.BadParameter, match=r"is an address.*score-runs.*kp-worker pull"):
        InputFile(exists=True).convert("http://localhost:6006", None, None)
