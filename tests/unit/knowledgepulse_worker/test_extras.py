"""The error of a missing extra names the command that installs it here."""

from importlib.metadata import Distribution

import pytest

from knowledgepulse_worker import extras
from knowledgepulse_worker.errors import MissingExtraError


class Installed(Distribution):
    """A distribution that pip installed from somewhere."""

    def __init__(self, origin: str | None) -> None:
        self._origin = origin

    def read_text(self, filename: str) -> str | None:
        return self._origin if filename == "direct_url.json" else None

    def locate_file(self, path: object) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (
            '{"url": "file:///home/me/src", "dir_info": {"editable": true}}',
            "pip install -c constraints.txt '.[policy]'",
        ),
        ('{"url": "file:///tmp/a.whl", "archive_info": {}}', "pip install 'knowledgepulse-worker[policy]'"),
        (None, "pip install 'knowledgepulse-worker[policy]'"),
    ],
    ids=["checkout", "wheel", "index"],
)
def test_a_missing_extra_names_the_command_for_this_installation(monkeypatch, origin, command):
    monkeypatch.setattr(extras, "distribution", lambda _name: Installed(origin))
    with pytest.raises(MissingExtraError) as raised, extras.extra("policy"):
        import a_package_that_nobody_has  # noqa: F401
    assert str(raised.value).endswith(command)
    assert "a_package_that_nobody_has is not installed" in str(raised.value)
