"""No message shows a secret of a URL."""

from __future__ import annotations

import pytest

from knowledgepulse_kafka.safe_text import without_secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host:8080/v1", "https://host:8080/v1"),
        ("localhost:9092,[::1]:9093", "localhost:9092,[::1]:9093"),
        ("s3://bucket/a@b/c", "s3://bucket/a@b/c"),
        ("https://user:SECRET@host/v1", "https://***@host/v1"),
        ("https://SECRET@host/v1", "https://***@host/v1"),
        ("https://user:SEC/RET@host/v1", "https://***@host/v1"),
        ("https://user:SEC@RET@host/v1", "https://***@host/v1"),
        ("https://user:SEC?RET@host/v1", "https://***"),
        ("https://user:SEC#RET@host/v1", "https://***"),
        ("https://host/token?key=SECRET", "https://host/token?***"),
        ("https://host/token?key=SEC@RET", "https://***"),
        ("https://host/token#SEC\nRET", "https://host/token?***"),
        ("user:SEC,RET@host:9092", "***@host:9092"),
        ("host:9092,user:SECRET@host:9092", "***@host:9092"),
    ],
)
def test_secrets_are_hidden(url, shown):
    assert without_secrets(url) == shown
