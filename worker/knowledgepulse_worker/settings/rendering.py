"""The effective settings as TOML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import tomli_w

from knowledgepulse_kafka.safe_text import without_secrets
from knowledgepulse_worker.policy import MINIMUMS, Policy
from knowledgepulse_worker.settings.models import KafkaSettings, Settings
from knowledgepulse_worker.settings.section import SecretSection
from knowledgepulse_worker.settings.setting_paths import sections

_WIDTH = 110


def render(settings: Settings) -> str:
    """Return the effective settings as TOML.

    Comments describe each setting, name the settings that are not set and the secrets that are omitted, and
    list the effective threshold and weights of each domain.
    """
    blocks = []
    for section, values in settings.model_dump(mode="json").items():
        if values is None:
            what = _comment(Settings.model_fields[section].description or "")
            blocks.append("\n".join([*what, f"# [{section}] is not set", ""]))
            continue
        lines, tables, model = [f"[{section}]"], [], sections()[section]
        for key, field in model.model_fields.items():
            what = _comment(field.description or "")
            value = values.get(key)  # a policy with a share has no threshold
            if isinstance(value, dict):  # which ends the section's own keys
                tables += [*what, _toml({section: {key: _without_none(value)}})]
                continue
            lines += what
            if value is None:
                lines.append(f"# {section}.{key} is not set")
            elif issubclass(model, SecretSection) and key in model.secrets():
                lines.append(_omitted(section, key))
            else:
                lines.append(_toml({key: _shown(value)}))
        if section == KafkaSettings.name:
            lines += _comment(f"effective: a transaction begins {settings.kafka.pace}")
        if isinstance(policy := getattr(settings, section), Policy):
            lines += _effective(section, policy)
        blocks.append("\n".join([*lines, *tables, ""]))
    return "\n".join(blocks)


def render_changed(settings: Settings) -> str:
    """Return the settings that differ from their defaults as TOML, with secrets as comments."""
    changed = settings.model_dump(mode="json", exclude_defaults=True)
    blocks = []
    for section, values in changed.items():
        model = sections()[section]
        secrets = model.secrets() if issubclass(model, SecretSection) else ()
        shown = {key: _shown(_without_none(value)) for key, value in values.items() if key not in secrets}
        omitted = [_omitted(section, key) for key in values if key in secrets]
        blocks.append("\n".join([*omitted, _toml({section: shown}), ""]))
    return "\n".join(blocks)


def _effective(section: str, policy: Policy) -> Iterator[str]:
    """Yield a comment for each domain, in the syntax that would set it."""
    yield "# effective, with a named domain's own values merged over the reference's:"
    for name, profile in policy.profiles.items():
        weights = ", ".join(f"{key} = {value!r}" for key, value in profile.weights.model_dump().items())
        rule = ", ".join(f"{key} = {value!r}" for key, value in profile.rule.items())
        minimums = "".join(f", {name} = {value!r}" for name in MINIMUMS if (value := getattr(profile, name)))
        domain = f"{{ {rule}{minimums}, weights = {{ {weights} }} }}"
        yield f"# {section}.domains.{_toml_key(name)} = {domain}"
        if profile.learned:
            share = profile.learned.share
            yield f"# {section}.domains.{_toml_key(name)}.learned has a share of {share!r} in the score"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)


def _shown(value: Any) -> Any:
    return without_secrets(value) if isinstance(value, str) and "://" in value else value


def _omitted(section: str, key: str) -> str:
    return f"# {section}.{key} is set, but omitted here as a secret"


def _toml(values: dict[str, Any]) -> str:
    return tomli_w.dumps(values).rstrip("\n")


def _toml_key(name: str) -> str:
    return _toml({name: 0}).removesuffix(" = 0")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
