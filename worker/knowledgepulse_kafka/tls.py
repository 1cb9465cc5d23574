"""TLS to the brokers, with certificates that can be renewed while the process runs."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from knowledgepulse_kafka.config import Config, revealed
from knowledgepulse_kafka.errors import ConfigurationError

logger = logging.getLogger(__name__)


class RenewedContext(ssl.SSLContext):
    """Verifies the servers' certificates and host names, and reloads renewed files.

    The files are checked at every new connection. If they are invalid or only partly renewed, the error is
    logged and the previous certificates stay in use.

    Args:
        config: names the files.

    Raises:
        ConfigurationError: a file cannot be read, or does not contain a certificate or key.
    """

    _config: Config
    _files: tuple[Path, ...]
    _versions: Sequence[object]

    def __new__(cls, config: Config) -> Self:
        """Create a client context; the base class expects the protocol here."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files = tuple(filter(None, (config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile)))
        self._versions = self._current_versions()
        _load(self, config)

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Start a connection; event loops call this for every new connection."""
        self._renew()
        return super().wrap_bio(*arguments, **options)

    def _renew(self) -> None:
        versions = self._current_versions()
        if versions == self._versions:
            return
        self._versions = versions
        try:
            # Try the files in a new context first, since a failure would leave this context broken.
            _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self._config)
            _load(self, self._config)
            logger.info("certificates reloaded: %s", ", ".join(map(str, self._files)))
        except ConfigurationError as error:
            logger.error("keeping the previous certificates: %s", error)  # noqa: TRY400 - the text suffices

    def _current_versions(self) -> list[object]:
        return [_version(file) for file in self._files]


def _version(file: Path) -> object:
    """Return a value that changes when the file is rewritten; None if it does not exist."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _load(context: ssl.SSLContext, config: Config) -> None:
    if config.ssl_cafile is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(config.ssl_cafile)
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"{config.prefix}ssl_cafile: {config.ssl_cafile}: contains no PEM certificate"
            ) from error
        except OSError as error:
            raise _unreadable(f"{config.prefix}ssl_cafile", config.ssl_cafile, error) from error
    if config.ssl_certfile is not None:
        key = config.ssl_keyfile or config.ssl_certfile
        _load_client_certificate(context, config, config.ssl_certfile, key)


def _load_client_certificate(context: ssl.SSLContext, config: Config, certificate: Path, key: Path) -> None:
    for name, file in (("ssl_certfile", certificate), ("ssl_keyfile", key)):
        try:
            file.open("rb").close()
        except OSError as error:
            raise _unreadable(f"{config.prefix}{name}", file, error) from error
    password = revealed(config.ssl_key_password)
    try:
        # Without a password, OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(certificate, key, password=password or "")
    except ssl.SSLError as error:
        prefix = config.prefix
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"{prefix}ssl_keyfile: {key}: is not the key of {prefix}ssl_certfile: {certificate}"
        elif "ENCRYPTED" in _text(key):
            problem = f"{prefix}ssl_key_password: does not decrypt {key}"
        elif "BEGIN CERTIFICATE" not in _text(certificate):
            problem = f"{prefix}ssl_certfile: {certificate}: contains no PEM certificate"
        else:
            problem = f"{prefix}ssl_keyfile: {key}: contains no PEM private key"
        raise ConfigurationError(problem) from error


def _unreadable(name: str, file: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{name}: {file}: cannot be read: {error.strerror}")


def _text(file: Path) -> str:
    return file.read_text(encoding="ascii", errors="replace")
