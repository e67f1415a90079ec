"""HTTPS: a certificate in the settings, or a clear refusal to start."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import httpx
import pytest

import holdfast
from holdfast.edges.http.app import Health, application
from holdfast.edges.http.server import http_server, tls_context
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.edges.settings.read import read_config
from holdfast.errors import ValidationError
from tests.edges.test_link import CERTIFICATE, KEY
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


async def test_https_is_served(tmp_path: Path) -> None:
    """With a certificate the door speaks TLS, and plain HTTP is not answered."""
    certificate, key, port = tmp_path / "certificate.pem", tmp_path / "key.pem", free_port()
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    tls = tls_context(str(certificate), str(key))
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with holdfast.open(tmp_path / "state.db") as store:
        app = application(Health(store), Metrics("holdfast", store))
        async with (
            http_server(app, host="127.0.0.1", port=port, tls=tls),
            httpx.AsyncClient(verify=trusting) as client,
        ):
            assert (await client.get(f"https://127.0.0.1:{port}/livez")).json() == {"alive": True}
            with pytest.raises(httpx.HTTPError):
                await client.get(f"http://127.0.0.1:{port}/livez")


def test_a_wrong_certificate_is_named(tmp_path: Path) -> None:
    """A file that is missing or is no certificate is refused by the name of its setting."""
    (tmp_path / "certificate.pem").write_text("none")
    for name in ("certificate.pem", "missing.pem"):
        with pytest.raises(ValidationError, match=r"http_tls_cert: .* can't be used") as caught:
            tls_context(str(tmp_path / name), None)
        assert caught.value.field == "http_tls_cert"
    with pytest.raises(ValidationError, match="http_tls_key needs http_tls_cert"):
        read_config(environment={"HOLDFAST_HTTP_TLS_KEY": "key.pem"})
