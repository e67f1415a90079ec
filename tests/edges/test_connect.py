"""The service's connection: it logs in in every way that NATS has, and says what is wrong with a login."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.bus.login import Login
from holdfast.edges.config import read_config
from holdfast.edges.nats import connect as module
from holdfast.edges.nats.connect import Link, login
from holdfast.edges.nats.permissions import new_credentials
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.errors import PermissionDenied, Unavailable, ValidationError
from tests.edges.running import ask, free_port, holdfast_up, plain_client

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nats_fixtures import StartServer

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBlTCCATugAwIBAgIBATAKBggqhkjOPQQDAjAYMRYwFAYDVQQDDA1ob2xkZmFz
dCB0ZXN0MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAYMRYwFAYD
VQQDDA1ob2xkZmFzdCB0ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3ton
8yMYgkawq+zqqd/0Vh5S4kZRO16UvEHXv3iQthVsP7fi4JYMvBhiYPgkSxq4PpCA
KocrHqfgZr68oxuykqN0MHIwDwYDVR0RBAgwBocEfwAAATAOBgNVHQ8BAf8EBAMC
AoQwDwYDVR0TAQH/BAUwAwEB/zAdBgNVHQ4EFgQUSL0FTO0Ms5OA87z8Xp3ZVzM9
yTwwHwYDVR0jBBgwFoAUSL0FTO0Ms5OA87z8Xp3ZVzM9yTwwCgYIKoZIzj0EAwID
SAAwRQIhAOSgDVLDW8t0YZeC8bbpB9JHx1qb1LquNz1szyfy0kanAiA8U/oFNgoR
bWu+SJwR9B7bnO2n7GuW52QzephZgeDkhg==
-----END CERTIFICATE-----
"""
"""Its own authority, for 127.0.0.1, from 2020 to 2120; for these tests alone."""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgTzu9kQpCH7vnp81m
dLpSS1Rh9nDeXhLce5Dqs63qgJOhRANCAATe2ifzIxiCRrCr7Oqp3/RWHlLiRlE7
XpS8Qde/eJC2FWw/t+Lglgy8GGJg+CRLGrg+kIAqhysep+BmvryjG7KS
-----END PRIVATE KEY-----
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a certificate and its key."""
    (tmp_path / "certificate.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    return tmp_path


def link(url: str, **settings: Any) -> Link:
    """A connection with these settings."""
    return Link(url, read_config(environment={}, **settings), name="holdfast")


async def test_a_user_with_a_password(nats_server_with: StartServer, tmp_path: Path) -> None:
    """An external NATS with a password is used as it is: no server is started, and the password not shown."""
    server = await nats_server_with("authorization { user: me, password: pa55 }")
    flags = ("--nats", server.url, "--nats-user", "me")
    async with (
        holdfast_up(tmp_path, *flags, HOLDFAST_NATS_PASSWORD="pa55") as up,
        plain_client(server.url, user="me", password="pa55") as client,
    ):
        assert (await ask(client, "db.kv.trivia.set", key="k", value=1))["success"]
        assert not (tmp_path / "holdfast" / "nats").exists()
        assert "pa55" not in "\n".join([*up.said, up.complaints])
    credentials = server.url.replace("//", "//me:pa55@")
    async with link(credentials) as connection:
        assert connection.client.is_connected


async def test_the_seed_of_an_nkey(nats_server_with: StartServer, tmp_path: Path) -> None:
    """An external NATS that knows the service by its nkey is used with the seed from a file."""
    credentials = new_credentials("service", "nkeys")
    server = await nats_server_with(f"authorization {{ users: [ {{ nkey: {credentials.public} }} ] }}")
    seed = tmp_path / "service.nk"
    seed.write_text(f"{credentials.secret}\n")
    async with (
        holdfast_up(tmp_path, NATS_URL=server.url, NATS_NKEY=str(seed)),
        plain_client(server.url, nkeys_seed_str=credentials.secret) as client,
    ):
        assert (await ask(client, "db.kv.trivia.set", key="k", value=1))["success"]


async def test_a_token(nats_server_with: StartServer) -> None:
    """A server that asks for a token gets it."""
    server = await nats_server_with("authorization { token: t0ken }")
    async with link(server.url.removeprefix("nats://"), nats_token="t0ken") as connection:
        assert connection.client.is_connected


async def test_tls(nats_server_with: StartServer, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that speaks TLS is trusted by its authority and sees the service's own certificate."""
    monkeypatch.setattr(module, "CONNECT_SECONDS", 3.0)
    certificate, key = str(files / "certificate.pem"), str(files / "key.pem")
    server = await nats_server_with(
        f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{certificate}", verify: true }}'
    )
    settings = {"nats_tls_ca": certificate, "nats_tls_cert": certificate, "nats_tls_key": key}
    async with link(server.url, **settings) as connection:
        await connection.client.flush()
    with pytest.raises(Unavailable, match="no NATS server can be reached"):
        await link(server.url).__aenter__()


async def test_a_client_that_does_not_trust_the_server_gives_up(
    nats_server_with: StartServer, files: Path
) -> None:
    """A handshake that fails ends a client's attempt too, as UNAVAILABLE."""
    certificate, key = files / "certificate.pem", files / "key.pem"
    server = await nats_server_with(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}')
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable, match="no NATS server can be reached"):
            await holdfast.open(server.url).__aenter__()
        async with holdfast.open(f"{server.url}?tls_ca={certificate}") as store:
            with pytest.raises(Unavailable, match="no Holdfast service answers"):
                await store.ready()


async def test_a_wrong_password_is_told_from_no_server(nats_server_with: StartServer) -> None:
    """Not let in and not there are two things, and neither shows the password."""
    server = await nats_server_with("authorization { user: me, password: pa55 }")
    with pytest.raises(PermissionDenied, match=f"at {server.url} does not let the service in"):
        await link(server.url, nats_user="me", nats_password="wrong").__aenter__()
    url = f"nats://me:pa55@127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match="no NATS server can be reached at nats://me@127") as caught:
        await link(url).__aenter__()
    assert "pa55" not in caught.value.message


async def test_a_login_that_may_not_listen_is_refused(nats_server_with: StartServer) -> None:
    """Logged in as somebody else than the service, it says so at once instead of answering nobody."""
    server = await nats_server_with(
        'authorization { users: [ { user: me, password: x, permissions: { subscribe: "other" } } ] }'
    )
    async with holdfast.open("memory://") as store, link(server.url, nats_user="me", nats_password="x") as to:
        service = NatsService(store, to.client, Settings())
        await service.start()
        with pytest.raises(PermissionDenied, match=r"listen at .*db\.kv\.\*\.>"):
            to.require_listening()
        await service.stop()


@pytest.mark.parametrize(
    ("setting", "content", "message"),
    [
        ("nats_creds", None, "can't be read"),
        ("nats_creds", "nothing of the kind", "does not hold a JWT and its seed"),
        ("nats_nkey", None, "can't be read"),
        ("nats_nkey", "UNSEEDED", "does not hold the seed of an nkey"),
        ("nats_tls_ca", None, "can't be read as certificates"),
        ("nats_tls_ca", "nonsense", "can't be read as certificates"),
        ("nats_tls_cert", "nonsense", "and its key can't be read"),
    ],
)
def test_a_file_that_is_not_what_it_should_be(
    tmp_path: Path, setting: str, content: str | None, message: str
) -> None:
    """What is needed to log in is looked at first, and is refused by the name of its setting."""
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValidationError, match=f"^{setting}: .*{message}") as caught:
        login(read_config(environment={}, **{setting: str(path)}))
    assert caught.value.field == setting


def test_a_creds_file_is_passed_on(tmp_path: Path) -> None:
    """A file with a JWT and its seed is what the client logs in with."""
    path = tmp_path / "user.creds"
    path.write_text("-----BEGIN NATS USER JWT-----\n-----BEGIN USER NKEY SEED-----\n")
    assert login(read_config(environment={}, nats_creds=str(path))) == Login(creds_file=str(path))
