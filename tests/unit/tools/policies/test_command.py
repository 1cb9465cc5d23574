"""The commands `kp-worker policy check` and `diff`."""

import os

import pytest

from knowledgepulse_worker.policy import Policy


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
    assert "no effect on the score or decision of any trace" in same.stdout


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


WEIGHTS = "complexity = 0.2\nnovelty = 0.3\ntool_diversity = 0.3\noutcome_confidence = 0.3\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no [policy]"),
        ("[polcy]\nthreshold = 0.5\n", "polcy: no such setting; did you mean policy?"),
        ("[policy]\nthreshold = 1.2\n", "policy.threshold: got 1.2; should be less than or equal to 1"),
        ("[policy]\ntreshold = 0.5\n", "policy.treshold: no such setting; did you mean policy.threshold?"),
        (
            "[policy.domains.code]\nthresold = 0.5\n",
            "policy.domains.code.thresold: no such setting; did you mean policy.domains.code.threshold?",
        ),
        (
            f"[policy.domains.code.weights]\n{WEIGHTS}",
            "sum to 1, but complexity 0.2 + novelty 0.3 + tool_diversity 0.3 + outcome_confidence 0.3 = 1.1",
        ),
        # Too little to be seen in a rounded sum.
        (
            f"[policy.domains.code.weights]\n{WEIGHTS[:-4]}0.2000001\n",
            "outcome_confidence 0.2000001 = 1.0000001",
        ),
        ("[policy]\nthreshold = 0.", "is not TOML"),
        ("policy = 3\n", "policy: got 3;"),
    ],
)
def test_an_invalid_policy_is_a_one_line_error(kp_worker, policy_file, text, message):
    file = policy_file(text)
    result = kp_worker("policy", "check", file)

    assert (result.exit_code, result.stdout) == (os.EX_CONFIG, "")
    assert result.stderr.startswith(f"Error: {file}: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
