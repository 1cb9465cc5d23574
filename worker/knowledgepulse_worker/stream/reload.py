"""Reload the policy and the shadow policy while the worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from knowledgepulse_worker.errors import EXPECTED, SettingsError
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.recent import excerpt
from knowledgepulse_worker.policy import Policy, PolicyInForce, begun_anew
from knowledgepulse_worker.settings import Settings, parse_file, read_file, settings_from

logger = logging.getLogger(__name__)

RELOAD_INTERVAL = 5.0
"""Seconds between two reads of the file."""

RELOADED = ("policy", "shadow")
"""The sections that take effect without a restart."""


class PolicyReload:
    """Reloads ``[policy]`` and ``[shadow]`` from a changed settings file; other settings require a restart.

    A read may see a half-written file, with ``threshold = 0`` instead of 0.6. So a change takes effect only
    after two consecutive reads are equal, and a file that has lost its policy changes nothing.

    Args:
        config: the settings file.
        settings: the settings in effect since the start.
        in_force: holds the current policies.
        metrics: counts every attempt.
        keep: records a policy before its first use; a policy that cannot be recorded is retried.
    """

    def __init__(
        self,
        config: Path,
        settings: Settings,
        in_force: PolicyInForce,
        metrics: Metrics,
        keep: Callable[[Policy], Awaitable[object]],
    ) -> None:
        self._config = config
        self._settings = settings
        self._in_force = in_force
        self._metrics = metrics
        self._keep = keep
        self._read: bytes | None = None
        self._accepted: bytes | None = None
        self._is_stale = False
        self._has_policy = settings.policy != settings_from({}).policy

    async def watch(self) -> None:
        """Check the file forever; an invalid file leaves the policy unchanged."""
        while True:
            await asyncio.sleep(RELOAD_INTERVAL)
            await self.check()

    async def check(self) -> None:
        """Apply the policy if the file has changed and the last two reads were equal."""
        self._notice_stale_mount()
        before, self._read = self._read, None
        with suppress(SettingsError):
            self._read = read_file(self._config)
        content = self._read
        if content is None or content != before or content == self._accepted:
            return
        self._accepted = content
        try:
            values = parse_file(self._config, content)
            self._require_policy(values)
            settings = settings_from(values, self._config)
        except SettingsError as error:
            self._reject(error)
            return
        for section in Settings.model_fields:
            if section in RELOADED:
                continue
            if getattr(settings, section) != getattr(self._settings, section):
                logger.warning("[%s] has changed in %s; restart to apply it", section, self._config)
        try:
            await self._apply(settings.policy, settings.shadow)
        except EXPECTED as error:
            self._reject(error)
            self._accepted = None
        else:
            self._in_force.refused = ""

    def _notice_stale_mount(self) -> None:
        """Warn once if the file was replaced behind a single-file mount, which keeps showing the old file.

        The old file then has no links left but is still visible through the mount.
        """
        was_stale, self._is_stale = self._is_stale, False
        with suppress(OSError):
            self._is_stale = self._config.stat().st_nlink == 0
        if self._is_stale and not was_stale:
            logger.warning(
                "%s was replaced, but its single-file mount still shows the old file: mount its folder",
                self._config,
            )
            self._metrics.policy.reloaded("failed")

    def _require_policy(self, values: Mapping[str, Any]) -> None:
        """Raise if a file that had a policy has lost it, since the defaults are probably not intended."""
        has_policy = values.get("policy", {}) not in ({}, {"domains": {}})
        if self._has_policy and not has_policy:
            raise SettingsError(
                f"{self._config}: [policy] is empty or missing; restart to apply the defaults"
            )
        self._has_policy = has_policy

    async def _apply(self, policy: Policy, shadow: Policy | None) -> None:
        old, old_shadow = self._in_force.policy.digest, _digest(self._in_force.shadow)
        if (policy.digest, _digest(shadow)) == (old, old_shadow):
            return
        if policy.digest != old:
            await self._keep(policy)
            begun = begun_anew(self._in_force.policy, policy)
            self._in_force.policy = policy
            self._metrics.set_policy(policy)
            logger.info("policy %s replaces %s", policy.digest, old)
            if begun:
                logger.info("the last scores of these domains begin anew: %s", ", ".join(begun))
        if _digest(shadow) != old_shadow:
            self._in_force.shadow = shadow
            self._metrics.policy.set_shadow(shadow)
            logger.info("shadow policy %s replaces %s", _digest(shadow), old_shadow)
        self._metrics.policy.reloaded("ok")

    def _reject(self, error: Exception) -> None:
        digest = self._in_force.policy.digest
        logger.error("keeping policy %s: %s", digest, error)
        self._in_force.refused = f"{excerpt(str(error))}; policy {digest} stays in force"
        self._metrics.policy.reloaded("failed")


def _digest(policy: Policy | None) -> str:
    return "none" if policy is None else policy.digest
