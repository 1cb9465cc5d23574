"""TLS to the brokers, with certificates that may be renewed while the process runs."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from worker.errors import SettingsError
from worker.settings import KafkaSettings

logger = logging.getLogger(__name__)


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    """Return the context that verifies the brokers, and shows them the client certificate if there is one.

    Raises:
        SettingsError: a file cannot be read, or holds no certificate or key.
    """
    return RenewedContext(kafka)


class RenewedContext(ssl.SSLContext):
    """Verifies certificate and host name of servers, and takes files that were renewed.

    The files are checked at each new connection. Files that are wrong, or only half renewed, are logged, and
    what was read before stays in use.

    Args:
        kafka: names the files.

    Raises:
        SettingsError: a file cannot be read, or holds no certificate or key.
    """

    _kafka: KafkaSettings
    _files: tuple[Path, ...]
    _versions: Sequence[object]

    def __new__(cls, kafka: KafkaSettings) -> Self:
        """Make a context for clients; the base class takes the protocol here."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._files = tuple(filter(None, (kafka.ssl_cafile, kafka.ssl_certfile, kafka.ssl_keyfile)))
        self._versions = self._seen()
        _load(self, kafka)

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection; event loops call this for each."""
        self._renew()
        return super().wrap_bio(*arguments, **options)

    def _renew(self) -> None:
        seen = self._seen()
        if seen == self._versions:
            return
        self._versions = seen
        try:
            _load(
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self._kafka
            )  # a failure would leave this one broken
            _load(self, self._kafka)
            logger.info("certificates were renewed: %s", ", ".join(map(str, self._files)))
        except SettingsError as error:
            logger.error("the certificates in use stay: %s", error)  # noqa: TRY400 - it is written for people

    def _seen(self) -> list[object]:
        return [_version(file) for file in self._files]


def _version(file: Path) -> object:
    """Return what differs once a file was written again; None while there is none."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _load(context: ssl.SSLContext, kafka: KafkaSettings) -> None:
    if kafka.ssl_cafile is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(kafka.ssl_cafile)
        except ssl.SSLError as error:
            raise SettingsError(
                f"kafka.ssl_cafile: {kafka.ssl_cafile}: holds no certificate in PEM"
            ) from error
        except OSError as error:
            raise _unreadable("ssl_cafile", kafka.ssl_cafile, error) from error
    if kafka.ssl_certfile is not None:
        _load_client_certificate(context, kafka, kafka.ssl_certfile, kafka.ssl_keyfile or kafka.ssl_certfile)


def _load_client_certificate(
    context: ssl.SSLContext, kafka: KafkaSettings, certificate: Path, key: Path
) -> None:
    for name, file in (("ssl_certfile", certificate), ("ssl_keyfile", key)):
        try:
            file.open("rb").close()
        except OSError as error:
            raise _unreadable(name, file, error) from error
    password = kafka.secret("ssl_key_password")
    try:
        # OpenSSL would ask for a password on the terminal when it is not given one.
        context.load_cert_chain(certificate, key, password=password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            told = f"kafka.ssl_keyfile: {key}: is not the key of kafka.ssl_certfile: {certificate}"
        elif "ENCRYPTED" in _text(key):
            told = f"kafka.ssl_key_password: does not open {key}"
        elif "BEGIN CERTIFICATE" not in _text(certificate):
            told = f"kafka.ssl_certfile: {certificate}: holds no certificate in PEM"
        else:
            told = f"kafka.ssl_keyfile: {key}: holds no private key in PEM"
        raise SettingsError(told) from error


def _unreadable(name: str, file: Path, error: OSError) -> SettingsError:
    return SettingsError(f"kafka.{name}: {file}: cannot be read: {error.strerror}")


def _text(file: Path) -> str:
    return file.read_text(encoding="ascii", errors="replace")
