"""The base classes of all sections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr, model_validator

from knowledgepulse_worker.errors import SettingsError


class Section(BaseModel):
    """A section of the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class SecretSection(Section):
    """A section whose secrets may also come from files, each named by ``<name>_file``."""

    name: ClassVar[str]
    """The section's name."""

    @model_validator(mode="after")
    def _each_secret_has_one_source(self) -> Self:
        for name in self.secrets():
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(f"{name} and {name}_file are both set; one of them is enough")
        return self

    @classmethod
    def secrets(cls) -> tuple[str, ...]:
        """Return the names of the secret settings."""
        return tuple(name for name, field in cls.model_fields.items() if field.annotation == SecretStr | None)

    def secret(self, name: str) -> str | None:
        """Return a secret, from its file if that is set; None if neither is set.

        Raises:
            SettingsError: the file cannot be read, or is empty.
        """
        value: SecretStr | None = getattr(self, name)
        if value is not None:
            return value.get_secret_value()
        file: Path | None = getattr(self, f"{name}_file")
        return None if file is None else _read_secret(f"{self.name}.{name}_file", file)


def _read_secret(setting: str, file: Path) -> str:
    """Return a file's text without the trailing newline that editors add."""
    try:
        text = file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise SettingsError(f"{setting}: {file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{setting}: {file}: is not UTF-8") from error
    if not text:
        raise SettingsError(f"{setting}: {file}: is empty")
    return text


def _topic(value: str) -> str:
    """Require a name that Kafka accepts for a topic."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", value) or value in {".", ".."}:
        raise ValueError("should be 1 to 249 ASCII letters, digits, '.', '_' and '-'")
    return value


TopicName = Annotated[str, AfterValidator(_topic)]
"""A topic's name."""
