"""The compiled libraries are those of these sources."""

import runpy

import pytest

from support.streams import TESTS

ROOT = TESTS.parent
BUILD = runpy.run_path(str(ROOT / "worker" / "hatch_build.py"))


@pytest.mark.parametrize("name", BUILD["LIBRARIES"])
def test_a_library_is_compiled_from_its_source_as_it_is(name):
    """A stale one would compute as its former source says, without a word."""
    source, library = ROOT / BUILD["LIBRARIES"][name][0], ROOT / name
    if not library.exists():
        pytest.skip("no compiler")
    assert bytes.fromhex(BUILD["build_id"](source)) in library.read_bytes(), (
        f"{name} is older than {source.name}; compile it by "
        "`.venv/bin/pip install --no-deps --no-build-isolation --editable .`"
    )
