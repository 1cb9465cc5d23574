"""Measurements are stored by their conditions, and a bad file only costs another measurement."""

import logging
from dataclasses import dataclass

import joblib
import pytest

from worker.embedding import measurements as module
from worker.embedding.measurements import measured_once


@dataclass(frozen=True)
class Speed:
    rate: float


@pytest.fixture
def measure(tmp_path):
    """A measurement that returns 1, 2, 3 and so on, under the given conditions."""
    measured = []

    def measure(folder=tmp_path / "cache", **conditions):
        def next_one():
            measured.append(len(measured) + 1.0)
            return Speed(measured[-1])

        return measured_once(folder, Speed, conditions, next_one).rate

    return measure


def test_the_same_conditions_are_measured_once(measure):
    assert measure(precision="float32") == 1
    assert measure(precision="float32") == 1
    assert measure(precision="bfloat16") == 2
    assert measure(precision="float32", budget=0.1) == 3
    assert measure(precision="float32") == 1


@pytest.mark.parametrize("name", ["_processor", "__version__"])
def test_another_processor_or_version_measures_again(measure, monkeypatch, name):
    measure()
    monkeypatch.setattr(module, name, "other" if name == "__version__" else lambda: ["other"])

    assert measure() == 2


def test_other_cores_measure_again(measure, monkeypatch):
    measure()
    monkeypatch.setattr(joblib, "cpu_count", lambda: 99)

    assert measure() == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"rate": "fast"}', b'{"rate": null}', b"\xff"])
def test_an_invalid_file_is_replaced_by_a_new_measurement(measure, tmp_path, content):
    measure()
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(content)

    assert measure() == 2
    assert measure() == 2


def test_a_read_only_folder_causes_a_measurement_each_time(measure, tmp_path, caplog):
    (tmp_path / "cache").write_text("a file where the folder should be")

    with caplog.at_level(logging.WARNING):
        assert [measure(), measure()] == [1, 2]
    assert "the next start measures again" in caplog.text


def test_nothing_is_stored_without_a_folder(measure):
    assert [measure(folder=None), measure(folder=None)] == [1, 2]
