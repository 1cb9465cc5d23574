"""Taking over a changed policy while the worker runs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from worker.errors import SettingsError
from worker.observe.metrics import Metrics
from worker.policy import PolicyInForce
from worker.settings import Settings, load_settings

logger = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two looks at the file."""


class PolicyReload:
    """Follows the ``[policy]`` of a settings file; everything else there is taken at the next start.

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
        self._seen = self._text()

    async def watch(self) -> None:
        """Look again and again; a file that is not what it should be leaves the policy as it is."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.check()

    def check(self) -> None:
        """Take over the policy, if the file has changed."""
        text = self._text()
        if text == self._seen:
            return
        self._seen = text
        try:
            settings = load_settings(self._config)
        except SettingsError as error:
            logger.error("the policy stays %s: %s", self._in_force.policy.digest, error)  # noqa: TRY400 - for people
            self._metrics.policy_reloaded("failed")
            return
        for section in Settings.model_fields:
            if section != "policy" and getattr(settings, section) != getattr(self._settings, section):
                logger.warning("[%s] has changed in %s; it is taken at the next start", section, self._config)
        self._take_over(settings)

    def _take_over(self, settings: Settings) -> None:
        old, new = self._in_force.policy.digest, settings.policy.digest
        self._in_force.policy = settings.policy
        self._metrics.policy_reloaded("ok")
        self._metrics.policy_in_force(settings.policy)
        if new != old:
            logger.info("policy %s takes the place of %s", new, old)

    def _text(self) -> str | None:
        try:
            return self._config.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
