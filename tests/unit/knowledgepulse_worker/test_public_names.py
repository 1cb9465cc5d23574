"""What programs import from the package itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import knowledgepulse_worker

STUB = Path(knowledgepulse_worker.__file__).with_suffix(".pyi")
NAMES = sorted({*knowledgepulse_worker.__all__} - {"__version__"})


@pytest.mark.parametrize("name", NAMES)
def test_each_public_name_is_that_of_its_module(name):
    value = getattr(knowledgepulse_worker, name)

    assert value.__name__ == name
    assert value.__doc__


def test_editors_and_type_checkers_see_the_same_names():
    imports = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)]

    assert sorted(alias.asname for node in imports for alias in node.names) == NAMES
    for node in imports:
        for alias in node.names:
            home = __import__(node.module, fromlist=[alias.name])
            assert getattr(home, alias.name) is getattr(knowledgepulse_worker, alias.name)


def test_the_package_imports_none_of_them_before_it_is_used():
    """A producer that only publishes must not pay for NumPy, nor a scorer for Kafka's client."""
    code = (
        "import sys, knowledgepulse_worker; assert not {'aiokafka', 'numpy', 'pydantic'} & {*sys.modules}\n"
        "knowledgepulse_worker.Scorer; assert 'aiokafka' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_the_usual_error():
    with pytest.raises(AttributeError, match="module 'knowledgepulse_worker' has no attribute 'Worker'"):
        knowledgepulse_worker.Worker  # noqa: B018
