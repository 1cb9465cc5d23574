"""The settings file that is found where a command runs, and when it is not to be trusted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from knowledgepulse_worker.cli.config_command import settings_schema, write_first_file
from knowledgepulse_worker.errors import InputError, SettingsError
from knowledgepulse_worker.settings import load_settings
from knowledgepulse_worker.settings.finding import find_settings


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository's root with a settings file that only its owner may write."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "agents" / "one").mkdir(parents=True)
    write(tmp_path, "[policy]\nshare = 0.2\n")
    return tmp_path


def write(folder: Path, content: str) -> Path:
    file = folder / "worker.toml"
    file.write_text(content)
    file.chmod(0o644)
    return file


def test_the_nearest_file_up_to_the_root_of_the_repository_is_found(repository):
    deep = repository / "agents" / "one"
    assert find_settings(deep, connects=True) == repository / "worker.toml"

    nearer = write(repository / "agents", "")
    assert find_settings(deep, connects=True) == nearer


@pytest.mark.parametrize("inside", [True, False], ids=["a repository inside", "no repository"])
def test_a_file_beyond_the_repository_or_of_a_parent_without_one_is_not_found(repository, inside):
    """A file in a home folder or in /tmp would otherwise decide in every folder below."""
    deep = repository / "agents" / "one"
    (repository / ".git").rmdir()
    if inside:
        (deep / ".git").write_text("gitdir: elsewhere")  # as in a worktree

    assert find_settings(deep, connects=False) is None
    assert find_settings(repository, connects=False) == repository / "worker.toml"


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_another_user_may_write_is_refused(repository, mode):
    (repository / "worker.toml").chmod(mode)

    with pytest.raises(SettingsError, match=r"worker\.toml: was found, .* other users may write it$"):
        find_settings(repository, connects=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_refused(repository):
    os.chown(repository / "worker.toml", 65534, -1)

    with pytest.raises(SettingsError, match=r"it belongs to another user$"):
        find_settings(repository, connects=False)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('[redaction]\nfunction = "os:system"', "redaction.function names a function to import"),
        (
            '[kafka]\nsasl_oauthbearer_token_provider = "os:getcwd"',
            "kafka.sasl_oauthbearer_token_provider names a function to import",
        ),
        (
            '[kafka]\nbootstrap_servers = "there:1"\nsasl_password_file = "/etc/hostname"',
            "kafka.sasl_password_file names a file whose content is sent",
        ),
        (
            '[registry]\napi_key_file = "/etc/hostname"',
            "registry.api_key_file names a file whose content is sent",
        ),
    ],
)
def test_a_file_that_would_run_or_send_what_is_not_its_own_is_refused_where_that_could_happen(
    repository, content, why
):
    file = write(repository, content)

    assert find_settings(repository, connects=False) == file
    with pytest.raises(SettingsError, match=f"{why}$"):
        find_settings(repository, connects=True)


@pytest.mark.parametrize("variable", ["KP_KAFKA__SASL_PASSWORD", "kp_kafka__sasl_password_file"])
def test_a_secret_of_the_environment_is_not_sent_to_the_servers_of_a_file_that_was_found(
    repository, monkeypatch, variable
):
    monkeypatch.setenv(variable, "secret")
    assert find_settings(repository, connects=True), "this file names no servers"

    write(repository, '[kafka]\nbootstrap_servers = "there:1"')
    with pytest.raises(SettingsError, match=f"{variable.upper()} would be sent to where"):
        find_settings(repository, connects=True)


def test_a_found_file_that_is_no_toml_is_named(repository):
    write(repository, "[kafka")
    with pytest.raises(SettingsError, match=r"worker\.toml: is not TOML"):
        find_settings(repository, connects=True)


def test_the_first_file_is_valid_and_never_replaces_one(tmp_path):
    file = tmp_path / "worker.toml"
    write_first_file(file)

    policy = load_settings(file).policy
    assert (policy.share, policy.min_novelty, policy.agent_cap) == (0.1, 0.05, 0.5)
    with pytest.raises(InputError, match="is there already, and is kept"):
        write_first_file(file)


def properties(schema):
    yield from schema.get("properties", {}).items()
    for model in schema["$defs"].values():
        yield from model.get("properties", {}).items()


def test_each_setting_has_a_description_in_the_schema():
    assert [name for name, what in properties(settings_schema()) if not what.get("description")] == []


@pytest.mark.parametrize(("share", "status"), [("0.1", 0), ("2", 1), ('"0.1"', 1)])
def test_an_editors_checker_reads_the_schema(tmp_path, kp_worker, share, status):
    (tmp_path / "worker.schema.json").write_text(kp_worker("config", "--schema").stdout)
    file = tmp_path / "worker.toml"
    write_first_file(file)
    content = file.read_text().replace("share = 0.1", f"share = {share}")
    file.write_text(f"#:schema ./worker.schema.json\n{content}")

    taplo = Path(sys.executable).with_name("taplo")
    checked = subprocess.run(
        [taplo, "check", file], check=False, cwd=tmp_path, capture_output=True, text=True
    )

    assert checked.returncode == status, checked.stderr
