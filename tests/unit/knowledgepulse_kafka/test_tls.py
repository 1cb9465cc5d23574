"""TLS files: every problem names its setting."""

from __future__ import annotations

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from knowledgepulse_kafka.client_factory import client_arguments
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import ConfigurationError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A CA, a certificate with a separate key, that key encrypted, another key, and a file without PEM."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    mine, other = authority.issue_cert("worker"), authority.issue_cert("other")
    mine.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    mine.private_key_pem.write_to_path(folder / "key.pem")
    other.private_key_pem.write_to_path(folder / "other.pem")
    key = load_pem_private_key(mine.private_key_pem.bytes(), password=None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"opens it"))
    (folder / "encrypted.pem").write_bytes(encrypted)
    (folder / "empty.pem").touch()
    return folder


def connect(files, **settings):
    paths = {name: files / value if name.endswith("file") else value for name, value in settings.items()}
    return client_arguments(Config(security_protocol="SSL", prefix="kafka.", **paths))["ssl_context"]


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl_cafile": "ca.pem"},
        {"ssl_certfile": "cert.pem", "ssl_keyfile": "key.pem"},
        {"ssl_certfile": "cert.pem", "ssl_keyfile": "encrypted.pem", "ssl_key_password": "opens it"},
    ],
)
def test_brokers_are_always_verified(files, settings):
    context = connect(files, **settings)
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl_cafile": "nosuch.pem"}, r"kafka\.ssl_cafile: .*nosuch\.pem: cannot be read: No such file"),
        ({"ssl_cafile": "empty.pem"}, r"kafka\.ssl_cafile: .*empty\.pem: contains no PEM certificate"),
        ({"ssl_cafile": "."}, r"kafka\.ssl_cafile: .*: cannot be read: Is a directory"),
        ({"ssl_certfile": "nosuch.pem"}, r"kafka\.ssl_certfile: .*nosuch\.pem: cannot be read: No such file"),
        ({"ssl_certfile": "empty.pem"}, r"kafka\.ssl_certfile: .*empty\.pem: contains no PEM certificate"),
        ({"ssl_certfile": "cert.pem"}, r"kafka\.ssl_keyfile: .*cert\.pem: contains no PEM private key"),
        (
            {"ssl_certfile": "cert.pem", "ssl_keyfile": "nosuch.pem"},
            r"kafka\.ssl_keyfile: .*nosuch\.pem: cannot be read",
        ),
        (
            {"ssl_certfile": "cert.pem", "ssl_keyfile": "other.pem"},
            r"kafka\.ssl_keyfile: .*other\.pem: is not the key of kafka\.ssl_certfile: .*cert\.pem",
        ),
        (
            {"ssl_certfile": "cert.pem", "ssl_keyfile": "encrypted.pem"},
            r"kafka\.ssl_key_password: does not decrypt .*encrypted\.pem",
        ),
        (
            {"ssl_certfile": "cert.pem", "ssl_keyfile": "encrypted.pem", "ssl_key_password": "no"},
            r"kafka\.ssl_key_password: does not decrypt .*encrypted\.pem",
        ),
    ],
)
def test_an_unusable_file_is_an_error_that_names_its_setting(files, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        connect(files, **settings)
