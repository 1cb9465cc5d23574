"""Taking over a changed policy while the worker runs."""

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
"""Seconds between two looks at the file."""


class PolicyReload:
    """Follows the ``[policy]`` of a settings file; everything else there is taken at the next start.

    A file may be read while it is written: half of it may say ``threshold = 0`` where the whole says 0.6. So
    a change counts once two reads in a row are equal, and a file that lost its policy changes nothing.

    Args:
        config: the file.
        settings: what was read from it at the start.
        in_force: gets the new policy.
        metrics: told of every attempt.
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
        """Look again and again; a file that is not what it should be leaves the policy as it is."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.check()

    def check(self) -> None:
        """Take over the policy, if the file has changed and was the same at the last look."""
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
            logger.error("the policy stays %s: %s", self._in_force.policy.digest, error)  # noqa: TRY400 - for people
            self._metrics.policy_reloaded("failed")
            return
        for section in Settings.model_fields:
            if section != "policy" and getattr(settings, section) != getattr(self._settings, section):
                logger.warning("[%s] has changed in %s; it is taken at the next start", section, self._config)
        self._take_over(settings)

    def _notice_stale_mount(self) -> None:
        """Warn once when the file was replaced behind a mount of it alone, which shows the old one for good.

        The old one has no name any more, and yet is there under the mount's.
        """
        was_stale, self._is_stale = self._is_stale, self._has_no_name()
        if self._is_stale and not was_stale:
            logger.warning(
                "%s was replaced, but is mounted by itself, which shows the old file: mount its folder",
                self._config,
            )
            self._metrics.policy_reloaded("failed")

    def _has_no_name(self) -> bool:
        try:
            return self._config.stat().st_nlink == 0
        except OSError:
            return False

    def _require_policy(self, values: Mapping[str, Any]) -> None:
        """Raise where a file that had a policy has none; the defaults are not what was meant."""
        has_policy = values.get("policy", {}) not in ({}, {"domains": {}})
        if self._has_policy and not has_policy:
            raise SettingsError(f"{self._config}: [policy] is empty or gone; for the defaults, start anew")
        self._has_policy = has_policy

    def _take_over(self, settings: Settings) -> None:
        old, new = self._in_force.policy.digest, settings.policy.digest
        if new == old:
            return
        self._in_force.policy = settings.policy
        self._metrics.policy_reloaded("ok")
        self._metrics.set_policy(settings.policy)
        logger.info("policy %s takes the place of %s", new, old)

    def _content(self) -> bytes | None:
        try:
            return read_file(self._config)
        except SettingsError:
            return None
