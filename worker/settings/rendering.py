"""The effective settings as TOML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tomli_w

from worker.policy import Policy
from worker.settings.models import KafkaSettings, Settings


def render(settings: Settings) -> str:
    """Return the effective settings as TOML.

    Comments list unset settings, omitted secrets, and each domain's effective threshold and weights.
    """
    secrets = {f"kafka.{name}" for name in KafkaSettings.secrets()}
    blocks = []
    for section, values in settings.model_dump(mode="json").items():
        if values is None:
            blocks.append(f"# [{section}] is not set\n")
            continue
        comments = []
        for key, value in values.items():
            if value is None:
                comments.append(f"# {section}.{key} is not set")
            elif f"{section}.{key}" in secrets:
                comments.append(f"# {section}.{key} is set, but omitted here as a secret")
                values[key] = None
        if isinstance(policy := getattr(settings, section), Policy):
            comments += _effective(section, policy)
        blocks.append(
            "\n".join([tomli_w.dumps({section: _without_none(values)}).rstrip("\n"), *comments, ""])
        )
    return "\n".join(blocks)


def _effective(section: str, policy: Policy) -> Iterator[str]:
    """Yield a comment for each domain, in the syntax that would set it."""
    yield "# effective, with a named domain's own values merged over the reference's:"
    for name, profile in policy.profiles.items():
        weights = ", ".join(f"{key} = {value!r}" for key, value in profile.weights.model_dump().items())
        domain = f"{{ threshold = {profile.threshold!r}, weights = {{ {weights} }} }}"
        yield f"# {section}.domains.{_toml_key(name)} = {domain}"


def _toml_key(name: str) -> str:
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
