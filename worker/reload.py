"""Reload the policy while the worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker.errors import SettingsError
from worker.observe.metrics import Metrics
from worker.policy import PolicyInForce
from worker.settings import Settings, parse_file, read_file, settings_from

logger = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two reads of the file."""


class PolicyReload:
    """Reloads the ``[policy]`` of a settings file on change; its other settings require a restart.

    A read may see a half-written file: ``threshold = 0`` instead of 0.6. So a change takes effect only once
    two reads in a row are equal, and a file that has lost its policy changes nothing.

    Args:
        config: the file.
        settings: the settings in effect since the start.
        in_force: holds the current policy.
        metrics: counts every attempt.
    """

    def __init__(self, config: Path, settings: Settings, in_force: PolicyInForce, metrics: Metrics) -> None:
        self._config = config
        self._settings = settings
        self._in_force = in_force
        self._metrics = metrics
        self._read: bytes | None = None
        self._accepted: bytes | None = None
        self._is_stale = False
        self._has_policy = settings.policy != settings_from({}).policy

    async def watch(self) -> None:
        """Check the file forever; an invalid file leaves the policy unchanged."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.check()

    def check(self) -> None:
        """Apply the policy if the file has changed and was the same at the last two reads."""
        self._notice_stale_mount()
        content, before = self._content(), self._read
        self._read = content
        if content is None or content != before or content == self._accepted:
            return
        self._accepted = content
        try:
            values = parse_file(self._config, content)
            self._require_policy(values)
            settings = settings_from(values)
        except SettingsError as error:
            logger.error("keeping policy %s: %s", self._in_force.policy.digest, error)  # noqa: TRY400 - the text suffices
            self._metrics.policy_reloaded("failed")
            return
        for section in Settings.model_fields:
            if section != "policy" and getattr(settings, section) != getattr(self._settings, section):
                logger.warning("[%s] has changed in %s; restart to apply it", section, self._config)
        self._apply(settings)

    def _notice_stale_mount(self) -> None:
        """Warn once if the file was replaced behind a single-file mount, which keeps showing the old one.

        The old file then has no links left, but is still visible through the mount.
        """
        was_stale, self._is_stale = self._is_stale, self._has_no_name()
        if self._is_stale and not was_stale:
            logger.warning(
                "%s was replaced, but a mount of the single file keeps showing the old one: mount its folder",
                self._config,
            )
            self._metrics.policy_reloaded("failed")

    def _has_no_name(self) -> bool:
        try:
            return self._config.stat().st_nlink == 0
        except OSError:
            return False

    def _require_policy(self, values: Mapping[str, Any]) -> None:
        """Raise if a file that had a policy has lost it; the defaults are probably not intended."""
        has_policy = values.get("policy", {}) not in ({}, {"domains": {}})
        if self._has_policy and not has_policy:
            raise SettingsError(f"{self._config}: [policy] is empty or missing; for the defaults, restart")
        self._has_policy = has_policy

    def _apply(self, settings: Settings) -> None:
        old, new = self._in_force.policy.digest, settings.policy.digest
        if new == old:
            return
        self._in_force.policy = settings.policy
        self._metrics.policy_reloaded("ok")
        self._metrics.set_policy(settings.policy)
        logger.info("policy %s replaces %s", new, old)

    def _content(self) -> bytes | None:
        try:
            return read_file(self._config)
        except SettingsError:
            return None
