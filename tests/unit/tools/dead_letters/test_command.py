"""The command `kp-worker dead-letters`: its help, and its errors."""

import pytest
from click.testing import CliRunner

from worker.errors import REASONS
from worker.tools.dead_letters.command import dead_letters


@pytest.mark.parametrize("command", ["list", "show", "replay"])
def test_help_describes_each_command(command):
    result = CliRunner().invoke(dead_letters, [command, "--help"])
    assert result.exit_code == 0
    summary = dead_letters.commands[command].get_short_help_str(100).rstrip(".")
    assert summary in " ".join(result.output.split())


def test_the_error_for_an_unknown_reason_lists_the_known_ones():
    result = CliRunner().invoke(dead_letters, ["list", "--reason", "because"])
    assert result.exit_code == 2
    assert all(f"'{reason}'" in result.stderr for reason in REASONS)
