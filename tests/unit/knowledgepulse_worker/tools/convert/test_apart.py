"""Files that are converted in a process of their own: what arrives, and what takes too long."""

import json
import os

import pytest

from knowledgepulse_convert import Options
from knowledgepulse_worker.tools.convert import apart
from support.hooks import converted_here
from support.memory import traced

MESSAGES = [{"role": "user", "content": "Fix the tests"}, {"role": "assistant", "content": "Done"}]
OPTIONS = Options(domains={"openai": "code"}, visibility="network", privacy_level="aggregated")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a\udcff.json"  # not UTF-8, as a folder of sessions may be
    path.write_text(json.dumps(MESSAGES))
    return str(path)


@pytest.fixture
def results():
    return {}


def test_the_traces_are_those_of_this_process(file, results):
    here = {}

    converted_here([file], "auto", OPTIONS, here.__setitem__)
    apart.converted_apart([file], "auto", OPTIONS, results.__setitem__)

    assert results == here
    assert json.loads(results[file].traces[0])["metadata"]["task_domain"] == "code"


def test_traces_take_twice_their_memory_while_they_arrive(tmp_path, results):
    """They took four times their memory: Python 3.11 makes a text of a coroutine's result at its end."""
    path = tmp_path / "long.json"
    path.write_text(json.dumps([MESSAGES[0], {"role": "assistant", "content": "x" * 5_000_000}]))
    with traced() as memory:
        apart.converted_apart([str(path)], "auto", OPTIONS, results.__setitem__)

    assert memory.peak < 2.5 * len(results[str(path)].traces[0])


@pytest.mark.slow
def test_a_file_that_takes_too_much_memory_is_named_and_the_next_is_converted(
    file, tmp_path, results, monkeypatch
):
    """Its lists take 20 times its size, and a hook runs on the machine of a person."""
    monkeypatch.setattr(apart, "MEMORY_LIMIT", 256 * 2**20)
    large = tmp_path / "large.json"
    large.write_text(f"[{'[],' * 3_500_000}[]]")

    apart.converted_apart([str(large), file], "auto", OPTIONS, results.__setitem__)

    assert results[str(large)].problem == f"{large}: needs more than 0.25 GiB of memory"
    assert len(results[file].traces) == 1


@pytest.mark.slow
def test_a_file_that_takes_too_long_is_named_and_the_next_is_converted(
    file, tmp_path, results, monkeypatch, capsys
):
    monkeypatch.setattr(apart, "CONVERSION_LIMIT", 0.3)
    os.mkfifo(endless := str(tmp_path / "endless"))

    apart.converted_apart([endless, file], "auto", OPTIONS, results.__setitem__)

    assert [(result.failed, len(result.traces)) for result in results.values()] == [(1, 0), (0, 1)]
    assert f"{endless}: not converted: it takes longer than" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_told(tmp_path, results):
    apart.converted_apart([name := str(tmp_path / "nosuch")], "auto", OPTIONS, results.__setitem__)

    assert "nosuch: cannot be read" in results[name].problem
