"""The service's connection: it logs in in every way that NATS has, and says what is wrong with a login."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.bus import connection as connection_module
from holdfast.bus.login import Login
from holdfast.compat.client import BotConnection
from holdfast.edges.nats import links as module
from holdfast.edges.nats.links import Link, login
from holdfast.edges.nats.server_config import new_credentials
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.edges.settings.read import read_config
from holdfast.errors import PermissionDenied, Unavailable, ValidationError
from tests.bus.scribe import Scribe, scribe
from tests.edges.nats.ground import until
from tests.edges.running import ask, holdfast_up, plain_client
from tests.ports import free_port
from tests.security.middle import middle

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from holdfast.bus.connection import Connection
    from holdfast.client.nats import NatsTransport
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
    with pytest.raises(Unavailable, match=r"its certificate is not trusted: self-signed .* nats_tls_ca"):
        await link(server.url).__aenter__()
    with pytest.raises(Unavailable, match="can't be used: it ended the connection while"):
        await link(server.url, nats_tls_ca=certificate).__aenter__()


async def test_a_client_that_does_not_trust_the_server_gives_up(
    nats_server_with: StartServer, files: Path
) -> None:
    """A certificate that is not trusted ends a client's attempt too, and is said to be that."""
    certificate, key = files / "certificate.pem", files / "key.pem"
    server = await nats_server_with(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}')
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable, match=r"its certificate is not trusted: self-signed .*tls_ca"):
            await holdfast.open(server.url).__aenter__()
        async with holdfast.open(f"{server.url}?tls_ca={certificate}") as store:
            with pytest.raises(Unavailable, match="no Holdfast service answers"):
                await store.ready()


async def test_settings_about_tls_require_it(
    nats_server_with: StartServer, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any of them a server without TLS is refused before anything is said to it, whatever the scheme."""
    certificate, key = str(files / "certificate.pem"), str(files / "key.pem")
    server = await nats_server_with("authorization { user: me, password: pa55 }")
    pair = {"tls_cert": certificate, "tls_key": key}
    async with middle(server.port) as wire:
        for one in ({"tls_ca": certificate}, pair):
            settings = {f"nats_{name}": path for name, path in one.items()}
            with pytest.raises(Unavailable, match="can't be used: it does not offer TLS"):
                await link(wire.url, nats_user="me", nats_password="pa55", **settings).__aenter__()
            variables = {f"HOLDFAST_{name.upper()}": path for name, path in settings.items()}
            config = read_config(environment=variables, nats_user="me", nats_password="pa55")
            with pytest.raises(Unavailable, match="can't be used: it does not offer TLS"):
                await Link(wire.url, config, name="holdfast").__aenter__()
            url = wire.url.replace("//", "//me:pa55@") + "?" + "&".join(f"{k}={v}" for k, v in one.items())
            with pytest.raises(Unavailable, match="can't be used: it does not offer TLS"):
                await holdfast.open(url).start()
        assert (wire.connections, wire.heard) == (6, b"")


async def test_a_server_that_begins_with_tls(nats_server_with: StartServer, files: Path) -> None:
    """`tls_first` is for a server with handshake_first; each is told from the other, and nothing is said."""
    certificate, key = str(files / "certificate.pem"), str(files / "key.pem")
    tls = f'cert_file: "{certificate}", key_file: "{key}"'
    first = await nats_server_with(f"tls {{ {tls}, handshake_first: true, timeout: 0.5 }}")
    usual = await nats_server_with(f"tls {{ {tls} }}")
    for variables in ({"HOLDFAST_NATS_TLS_FIRST": "true"}, {}):
        flags: dict[str, Any] = {} if variables else {"nats_tls_first": True}
        config = read_config(environment=variables, nats_tls_ca=certificate, **flags)
        async with Link(first.url, config, name="holdfast") as connection:
            await connection.client.flush()
    async with holdfast.open(f"{first.url}?tls_ca={certificate}&tls_first=true") as store:
        with pytest.raises(Unavailable, match="no Holdfast service answers"):
            await store.ready()
    with pytest.raises(Unavailable, match="its certificate is not trusted"):
        await holdfast.open(f"{first.url}?tls_first=true").start()
    with pytest.raises(Unavailable, match="needs tls_first"):
        await holdfast.open(f"{first.url}?tls_ca={certificate}").start()
    with pytest.raises(Unavailable, match="it does not begin with TLS"):
        await holdfast.open(f"{usual.url}?tls_ca={certificate}&tls_first=true").start()


def test_options_in_the_url_of_a_service(files: Path) -> None:
    """What a client says in its URL is a setting of the service; it is refused rather than overlooked."""
    with pytest.raises(ValidationError, match="nats_tls_ca") as caught:
        link(f"nats://127.0.0.1?tls_ca={files}/certificate.pem")
    assert caught.value.field == "nats"


async def test_a_server_that_is_no_longer_trusted(
    nats_server_with: StartServer,
    files: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a server comes back with a certificate that is not trusted, a log and a client's error say so."""
    monkeypatch.setattr(connection_module, "PAUSE_SECONDS", 0.05)
    certificate, key = files / "certificate.pem", files / "key.pem"
    server = await nats_server_with(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}')
    async with (
        link(server.url, nats_tls_ca=str(certificate)) as connection,
        holdfast.open(f"{server.url}?tls_ca={certificate}") as store,
    ):
        transport: NatsTransport = store.caller.transport  # type: ignore[union-attr]
        for client in (connection.client, transport._client):
            client._login = Login(tls=ssl.create_default_context())
        await server.stop()
        await until(lambda: not connection.client.is_connected)
        await server.start()
        await until(lambda: "self-signed" in caplog.text)
        await until(lambda: transport._refused is not None)
        with pytest.raises(Unavailable, match=r"no connection .*: its certificate is not trusted: self-sig"):
            await store.kv("trivia").get("k")
    told = [record for record in caplog.records if "can't be used" in record.message]
    assert [record.levelname for record in told] == ["WARNING"]


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
        with pytest.raises(PermissionDenied, match=r"listen at .*db\.kv\.>"):
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


async def test_a_connection_that_is_lost_while_the_service_starts() -> None:
    """A service starts although NATS drops the connection before it has confirmed the subscriptions.

    It subscribes again once the connection is back. A plugin of the Rosey bot is told of no error either.
    """
    bot = BotConnection()
    async with scribe() as who, link(who.url) as connection, holdfast.open("memory://") as store:
        service = NatsService(store, connection.client, Settings())
        await bot.reach(who.url)
        await _cut_off(who, bot, bot.subscribe("bot.x"))
        await _cut_off(who, connection.client, service.start())
        assert any(line.startswith(b"SUB db.kv.") for line in who.lines)
        await bot.close()


async def _cut_off(who: Scribe, client: Connection, work: Coroutine[Any, Any, Any]) -> None:
    """Drop all connections when something is flushed, and return when the client has subscribed again."""
    who.silent = True
    who.lines.clear()
    beginning = asyncio.create_task(work)
    await until(lambda: b"PING" in who.lines)
    who.silent = False
    who.lines.clear()
    for writer in who.writers:
        writer.close()
    async with asyncio.timeout(60):
        await beginning
    await until(lambda: client.is_connected)
    await client.flush()
