"""The commands `kp-worker policy check` and `diff`; finding a policy by its digest."""

import pytest

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.kafka.policy_topic import KeptPolicy
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.policy_command import find_policy


@pytest.fixture
def policy_file(tmp_path):
    """Write a policy file and return its path."""

    def write(text, name="policy.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_check_prints_digest_table_and_changes_from_the_sdk(kp_worker, policy_file, monkeypatch):
    """Whatever the environment: the output depends on the file alone."""
    monkeypatch.setenv("KP_POLICY__THRESHOLD", "0.1")
    finance = policy_file("[policy.domains.finance]\nthreshold = 0.6\n[web]\nport = 6067\n", "finance.toml")

    changed, same = (kp_worker("policy", "check", file) for file in (finance, policy_file(OLD)))

    assert changed.exit_code == 0
    assert "  finance: threshold 0.75 → 0.6\n" in changed.stdout
    rows = [line.split() for line in changed.stdout.splitlines()]
    assert ["customer_service", "0.75", "0.2", "0.3", "0.2", "0.3"] in rows
    assert f"policy {Policy().digest}\n" in same.stdout
    assert same.stdout.endswith("\n\nscores and decides as the SDK's policy does\n")


def test_the_history_compares_the_first_policy_with_the_sdks(kp_worker, monkeypatch):
    kept = [KeptPolicy(policy, since) for since, policy in enumerate([Policy(), Policy(threshold=0.5)])]

    async def read(settings):
        return kept

    monkeypatch.setattr("knowledgepulse_worker.tools.policies.scored_topics.policy_history", read)

    assert [line.strip() for line in kp_worker("policy", "history").stdout.splitlines()] == [
        f"1970-01-01T00:00:00.000Z  policy {kept[0].policy.digest}",
        "scores and decides as the SDK's policy does",
        f"1970-01-01T00:00:00.001Z  policy {kept[1].policy.digest}",
        "every domain: threshold 0.75 → 0.5",
    ]


OLD = "[policy]\nthreshold = 0.75\n"


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ('[policy]\ncontribute_visibility = ["org"]\n', "contribute_visibility: private, org, network → org"),
        (f"{OLD}[policy.domains.code]\nthreshold = 0.5\n", "code: threshold 0.75 → 0.5"),
    ],
)
def test_check_and_diff_print_the_changes(kp_worker, policy_file, text, change):
    old, new = policy_file(OLD, "old.toml"), policy_file(text, "new.toml")

    assert f"  {change}" in kp_worker("policy", "check", new).stdout.splitlines()
    assert kp_worker("policy", "diff", old, new).stdout.splitlines()[1:] == [f"  {change}"]
    assert kp_worker("policy", "diff", old, old).stdout == "no effect on the score or decision of any trace\n"


HISTORY = [KeptPolicy(Policy(threshold=number / 100), number) for number in range(40)]
ONE = HISTORY[7].policy
FIRST = next(dated.policy.digest[0] for dated in HISTORY)
ALIKE = [dated.policy.digest for dated in HISTORY if dated.policy.digest.startswith(FIRST)]


def test_a_policy_is_found_by_its_digest_or_the_beginning_of_it():
    assert find_policy(HISTORY, ONE.digest).policy == ONE
    assert find_policy(HISTORY, ONE.digest[:8]).policy == ONE


@pytest.mark.parametrize(
    ("digest", "message"),
    [
        ("ffffffffffff", "no policy in force begins with 'ffffffffffff'; known: .*" + ONE.digest),
        (FIRST, f"{len(ALIKE)} policies begin with '{FIRST}': {', '.join(ALIKE)}; give more digits"),
    ],
)
def test_another_digest_is_refused_with_those_that_could_be_meant(digest, message):
    with pytest.raises(InputError, match=message):
        find_policy(HISTORY, digest)
