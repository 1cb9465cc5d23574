"""Ask a registry once whether it takes contributions of an agent."""

from __future__ import annotations

from knowledgepulse_curator.contributions.registry_client import RegistryClient
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.settings import RegistrySettings
from knowledgepulse_worker.tools.common.retries import NoAnswerError


async def require_access(registry: RegistrySettings) -> None:
    """Check that a registry answers, and that the key belongs to the agent.

    Raises:
        SettingsError: the settings are incomplete, or there is no registry at the address.
        AccessError: it refuses the key, or the key belongs to another agent.
        InputError: it does not answer.
    """
    async with RegistryClient(registry, _at_once) as client:
        try:
            await client.check()
        except NoAnswerError as error:
            raise InputError(f"registry.url: {registry.url}: {error.reason}: {error}") from error


async def _at_once(seconds: float) -> None:
    """Do not wait: it is one request, and starting the command takes longer than the pace asks for."""
