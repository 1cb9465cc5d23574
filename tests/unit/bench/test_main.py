"""`python -m bench` measures the given sections and stores the results."""

import json

from click.testing import CliRunner

from bench import novelty
from bench.__main__ import main


def test_writes_a_short_section_as_json(tmp_path, monkeypatch):
    monkeypatch.setattr(novelty, "ENTRIES", (50,))
    monkeypatch.setattr(novelty, "SECONDS", 0.01)

    done = CliRunner().invoke(main, ["novelty", "--short", "--out", str(tmp_path)], catch_exceptions=False)

    assert done.exit_code == 0
    assert "50 entries: look-up" in done.output
    data = json.loads((tmp_path / "results.json").read_text())
    [section] = data["sections"]
    assert section["name"] == "novelty"
    assert {figure["count"] for figure in section["figures"]} == {3}
    assert all(figure["median"] > 0 for figure in section["figures"])
    assert data["header"]["form"] == "short"
    assert data["header"]["cores"]
