"""Reloading the policy while the worker runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.policy import Policy, PolicyInForce
from knowledgepulse_worker.settings import load_settings
from knowledgepulse_worker.stream.reload import PolicyReload


class Running:
    """A worker's policy state after it has started with a file."""

    def __init__(self, config, text):
        self.config = config
        config.write_text(text)
        settings = load_settings(config)
        self.in_force = PolicyInForce(settings.policy, settings.shadow)
        self.registry = CollectorRegistry()
        self.metrics = Metrics(settings.policy, 0.1, self.registry)
        self.metrics.policy.set_shadow(settings.shadow)
        self.shadow = ShadowComparison(self.in_force)
        self.kept = []
        self.error = None
        self.reload = PolicyReload(config, settings, self.in_force, self.metrics, self.keep)

    async def keep(self, policy):
        assert self.in_force.policy != policy, "kept before its first use"
        if self.error:
            raise self.error
        self.kept.append(policy)

    def check(self):
        asyncio.run(self.reload.check())

    def changed_to(self, text):
        """Write a complete change, and read the file twice."""
        self.config.write_text(text)
        self.check()
        self.check()

    def value(self, name, **labels):
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def start(tmp_path):
    return lambda text: Running(tmp_path / "worker.toml", text)


def test_a_changed_threshold_is_applied_and_logged(start, caplog):
    caplog.set_level("INFO")
    here = start("[policy]\nthreshold = 0.5")
    old = here.in_force.policy.digest

    here.changed_to("[policy]\nthreshold = 0.6")

    assert here.in_force.policy.threshold == 0.6
    assert here.value("kp_policy_reloads_total", result="ok") == 1
    assert here.value("kp_threshold", domain="code") == 0.6
    assert here.kept == [here.in_force.policy]
    assert here.value("kp_policy_info", policy=old) is None
    assert here.value("kp_policy_info", policy=here.in_force.policy.digest) == 1
    assert f"policy {here.in_force.policy.digest} replaces {old}" in caplog.text


def test_a_shadow_policy_is_applied_changed_and_ended(start, caplog):
    caplog.set_level("INFO")
    policy = "[policy]\nthreshold = 0.5\n"
    here = start(policy)
    first, second = (Policy(threshold=threshold) for threshold in (0.6, 0.7))

    here.changed_to(f"{policy}[shadow]\nthreshold = 0.6")
    assert here.shadow.report.policy == first
    assert here.value("kp_shadow_policy_info", policy=first.digest) == 1
    assert f"shadow policy {first.digest} replaces none" in caplog.text

    here.changed_to(f"{policy}[shadow]\nthreshold = 0.7")
    assert here.shadow.report.policy == second
    assert here.value("kp_shadow_policy_info", policy=first.digest) is None

    here.changed_to(policy)
    assert here.shadow.report is None
    assert f"shadow policy none replaces {second.digest}" in caplog.text
    assert here.value("kp_policy_reloads_total", result="ok") == 3
    assert here.kept == [], "a shadow policy is never in force"


def test_the_comparison_restarts_when_either_policy_changes(start):
    here = start("[policy]\nthreshold = 0.5\n[shadow]\nthreshold = 0.6")
    compared = here.shadow.report

    here.changed_to("[policy]\nthreshold = 0.55\n[shadow]\nthreshold = 0.6\n[web]\nport = 7000")
    assert here.shadow.report is not compared
    compared = here.shadow.report
    assert compared.policy.threshold == 0.6

    here.changed_to("[policy]\nthreshold = 0.55\n[shadow]\nthreshold = 0.6\n[web]\nport = 7001")
    assert here.shadow.report is compared


def test_a_policy_that_cannot_be_kept_is_tried_again(start, caplog):
    here = start("[policy]\nthreshold = 0.5")
    here.error = NoBrokerError("nobody is there")

    here.changed_to("[policy]\nthreshold = 0.6")
    assert here.in_force.policy.threshold == 0.5
    assert here.value("kp_policy_reloads_total", result="failed") == 1
    assert "nobody is there" in caplog.text

    here.error = None
    here.check()
    assert here.in_force.policy.threshold == 0.6


@pytest.mark.parametrize(
    "text",
    [
        *(
            "[policy]\nthreshold = 7",
            "[policy",
            "[polices]",
            "[policy]\nthreshold = 0.55\n[shadow]\nthreshold = 2",
        ),
        pytest.param("a = " + "[" * 100_000, id="nested too deeply"),
        pytest.param("a = " + "9" * 5_000, id="too many digits"),
        *("", "[policy]", "[limits]\ndrain = 20", "[polic", "[policy.domains]"),
    ],
)
def test_a_file_that_is_invalid_or_lost_its_policy_changes_nothing_and_is_logged_once(start, text, caplog):
    here = start("[policy]\nthreshold = 0.5")
    for _ in range(3):
        here.changed_to(text)
    assert here.in_force.policy.threshold == 0.5
    assert here.value("kp_policy_reloads_total", result="failed") == 1
    assert "keeping policy" in caplog.text

    here.changed_to("[policy]\nthreshold = 0.6")
    assert here.in_force.policy.threshold == 0.6


def test_a_file_that_is_briefly_missing_or_unchanged_applies_nothing(start):
    """Editors and ConfigMaps replace files."""
    here = start("[policy]\nthreshold = 0.5")
    here.config.unlink()
    here.check()
    here.changed_to("[policy]\nthreshold = 0.5")
    assert here.value("kp_policy_reloads_total", result="ok") == 0


def test_changes_of_other_settings_are_logged_as_needing_a_restart(start, caplog):
    here = start("[policy]\nthreshold = 0.5")

    here.changed_to("[policy]\nthreshold = 0.6\n[limits]\ndrain = 1")

    assert here.in_force.policy.threshold == 0.6
    assert "[limits] has changed" in caplog.text
    assert "[kafka]" not in caplog.text


def test_a_new_domain_s_scores_start_at_zero(start):
    here = start("")

    here.changed_to("[policy.domains.legal]\nthreshold = 0.9")

    assert here.value("kp_quality_score_count", domain="legal", outcome="rejected") == 0


WHOLE = "[policy]\nthreshold = 0.6\n[policy.domains.code]\nthreshold = 0.8\n"


@given(st.integers(0, len(WHOLE)))
def test_a_half_written_file_changes_nothing(tmp_path_factory, written):
    """Cut off after the 0 of 0.6, it would let everything pass."""
    here = Running(tmp_path_factory.mktemp("half") / "worker.toml", "[policy]\nthreshold = 0.5")
    here.config.write_text(WHOLE[:written])
    here.check()
    assert here.in_force.policy.threshold == 0.5
    here.changed_to(WHOLE)
    assert here.in_force.policy.threshold == 0.6


def test_a_file_that_never_had_a_policy_needs_none(start, caplog):
    here = start("[limits]\ndrain = 20")
    here.changed_to("[limits]\ndrain = 21")
    assert here.value("kp_policy_reloads_total", result="failed") == 0
    here.changed_to("[policy]\nthreshold = 0.6")
    assert here.in_force.policy.threshold == 0.6


def test_a_change_between_the_start_and_the_first_check_is_not_missed(tmp_path):
    """Loading a model takes seconds."""
    here = Running(tmp_path / "worker.toml", "[policy]\nthreshold = 0.5")
    settings = load_settings(here.config)
    here.config.write_text("[policy]\nthreshold = 0.6")
    here.reload = PolicyReload(here.config, settings, here.in_force, here.metrics, here.keep)
    here.check()
    here.check()
    assert here.in_force.policy.threshold == 0.6


def test_a_file_replaced_behind_its_mount_is_logged_once(start, monkeypatch, caplog):
    """`sed -i` and editors write a new file, but a single-file mount keeps showing the old one."""
    here = start("[policy]\nthreshold = 0.5")
    here.check()
    assert caplog.text == ""

    # As a bind mount shows it: by the mount's name, without one of its own.
    stat = os.stat_result((0o100644, 1, 1, 0, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda *_, **__: stat)
    here.check()
    here.check()

    assert caplog.text.count("its single-file mount still shows the old file: mount its folder") == 1
    assert here.value("kp_policy_reloads_total", result="failed") == 1


def test_a_change_of_weights_under_a_share_says_that_the_last_scores_begin_anew(start, caplog):
    caplog.set_level("INFO")
    here = start("[policy]\nshare = 0.1")

    here.changed_to("[policy]\nshare = 0.2")
    assert "begin anew" not in caplog.text
    weights = "{ complexity = 1, novelty = 0, tool_diversity = 0, outcome_confidence = 0 }"
    here.changed_to(f"[policy]\nshare = 0.2\ndomains.code.weights = {weights}")

    assert "the last scores of these domains begin anew: code" in caplog.text
    assert here.value("kp_share", domain="code") == 0.2


def test_a_refused_edit_is_told_until_a_valid_policy_comes(start):
    here = start("[policy]\nthreshold = 0.5")
    in_force, digest = here.in_force, here.in_force.policy.digest

    here.changed_to("[policy]\nthreshold = 7")
    assert "policy.threshold: got 7" in in_force.refused
    assert in_force.refused.endswith(f"policy {digest} stays in force")

    here.changed_to("[policy]\nthreshold = 0.5")  # the former one, which is in force already
    assert in_force.refused == ""
