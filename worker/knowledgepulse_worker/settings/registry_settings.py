"""The section of `kp-worker contributions`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, SecretStr

from knowledgepulse_worker.settings.section import SecretSection


class RegistrySettings(SecretSection):
    """The KnowledgePulse registry that contributed traces are sent to."""

    name: ClassVar[str] = "registry"

    url: str | None = Field(
        None, pattern=r"^https?://[^\s@?#]+$", description="address of the registry, without `/v1`"
    )
    agent_id: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="agent that the API key is registered for; it replaces the agent of each contribution, "
        "because the registry lets only this agent delete them",
    )
    api_key: SecretStr | None = Field(None, description="API key with the scope `write`; never printed")
    api_key_file: Path | None = Field(None, description="file with the API key")
    visibilities: Annotated[tuple[Literal["org", "network"], ...], Field(min_length=1)] = Field(
        ("network",), description="values of `metadata.visibility` to send: a list of `org` and `network`"
    )
    require_clean: bool = Field(
        True, description="whether to hold back traces in which the SDK's cleaner finds anything"
    )
    timeout: float = Field(30.0, gt=0, le=600, description="seconds to wait for an answer from the registry")
