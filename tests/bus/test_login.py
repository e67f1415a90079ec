"""How one logs in: what the address says, what is shown to the server, and what is encrypted."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import ssl
import sys
from typing import TYPE_CHECKING, Any

import nkeys  # type: ignore[import-untyped]
import pytest
import uvloop

from holdfast.bus.connection import Connection
from holdfast.bus.errors import BusError, LoginRefused, ServerComplaint, Untrusted, refusal
from holdfast.bus.login import Login, Server, server_at, servers_beside
from holdfast.bus.protocol import Info
from holdfast.edges.nats.server_config import new_credentials
from holdfast.errors import Unsupported
from tests.bus.scribe import scribe
from tests.edges.test_link import CERTIFICATE, KEY
from tests.nats import nats_server
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.nats_fixtures import StartServer

HOST = Server(host="host", name="host")


def shown(login: Login, server: Server = HOST, nonce: str = "") -> dict[str, str]:
    """What goes into the introduction."""
    return login.shown(server, Info(nonce=nonce), encrypted=False)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("host", {}),
        ("nats://HOST:4222/", {}),
        (" host:77 ", {"port": 77}),
        ("tls://host", {"secure": True}),
        ("nats://me:pa%3A%40ss@host", {"user": "me", "password": "pa:@ss"}),
        ("nats://t%2Fken@host", {"user": "t/ken"}),
        ("nats://[::1]:77", {"host": "::1", "name": "::1", "port": 77}),
    ],
)
def test_addresses(url: str, server: dict[str, Any]) -> None:
    """An address says where a server is, whether it is to be encrypted, and perhaps who is asking."""
    assert server_at(url) == Server(**({"host": "host", "name": "host"} | server))


@pytest.mark.parametrize(
    "url", ["", "nats://", "ws://host", "host:port", "nats://host:99999", "a..b", "nats://[::1"]
)
def test_addresses_that_are_not_of_nats_are_refused(url: str) -> None:
    """Anything else is refused before anybody is asked."""
    with pytest.raises(BusError, match="not that of a NATS server"):
        server_at(url)


def test_options_are_not_overlooked() -> None:
    """An option that nobody here would look at, such as one about TLS, is refused."""
    with pytest.raises(BusError, match="no options"):
        server_at("nats://host?tls_ca=ca.pem")


def test_servers_that_a_server_names() -> None:
    """They are reached as the one that named them; the name to trust depends on who could hear."""
    server = Server(host="a.example", name="a.example", secure=True, user="me", password="pa55")
    told = ["b.example:77", "10.0.0.1:4222", "[::1]:4222", "7", "ws://x"]
    found = servers_beside(server, told, encrypted=True)
    assert [(one.host, one.port, one.name) for one in found] == [
        ("b.example", 77, "b.example"),
        ("10.0.0.1", 4222, "a.example"),
        ("::1", 4222, "a.example"),
        ("7", 4222, "a.example"),
    ]
    assert all((one.secure, one.user, one.password) == (True, "me", "pa55") for one in found)
    assert {one.name for one in servers_beside(server, told, encrypted=False)} == {"a.example"}
    assert all(one.announced for one in found)


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("encrypted", [True, False])
def test_servers_told_of_over_tls_have_to_speak_it(secure: bool, encrypted: bool) -> None:
    """What was encrypted once is not given up because a server names others."""
    [found] = servers_beside(Server(host="a", secure=secure), ["b"], encrypted=encrypted)
    assert found.secure is (secure or encrypted)


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize(
    ("login", "secret"),
    [
        (Login(user="me", password="pa55"), True),
        (Login(token="t0ken"), True),
        (Login(), True),
        (Login(nkey=new_credentials("me", "nkeys").secret), False),
        (Login(nkey=new_credentials("me", "nkeys").secret, token="t0ken"), True),
    ],
)
def test_no_password_in_plain_text_to_a_server_that_nobody_named(
    login: Login, secret: bool, announced: bool, encrypted: bool
) -> None:
    """A password goes to a server that another one told of only if nobody can read along."""
    server = Server(host="h", user="me", password="pa55", announced=announced)
    if secret and announced and not encrypted:
        with pytest.raises(BusError, match="refusing to send a password in plain text"):
            login.shown(server, Info(nonce="n"), encrypted=encrypted)
    else:
        assert login.shown(server, Info(nonce="n"), encrypted=encrypted)


@pytest.mark.parametrize(
    ("login", "server", "expected"),
    [
        ({}, {}, {}),
        ({"user": "me", "password": ""}, {"user": "x", "password": "y"}, {"user": "me", "pass": ""}),
        ({"token": "t"}, {"user": "x", "password": "y"}, {"auth_token": "t"}),
        ({}, {"user": "x", "password": "y"}, {"user": "x", "pass": "y"}),
        ({}, {"user": "x"}, {"auth_token": "x"}),
    ],
)
def test_a_login_beside_the_address_counts_more_than_one_in_it(
    login: dict[str, Any], server: dict[str, Any], expected: dict[str, str]
) -> None:
    """What was given beside the address counts more than what is in it."""
    assert shown(Login(**login), Server(host="h", **server)) == expected


def test_seeds(tmp_path: Path) -> None:
    """A seed signs what the server wants signed, whether it is given or in a file; a token goes along."""
    credentials = new_credentials("me", "nkeys")
    path = tmp_path / "seed"
    path.write_text(f" {credentials.secret}\n")
    given = shown(Login(nkey=credentials.secret), nonce="n0nce")
    assert given == shown(Login(nkey_file=str(path)), nonce="n0nce")
    assert given.keys() == {"nkey", "sig"}
    signature = base64.urlsafe_b64decode(given["sig"] + "==")
    assert nkeys.from_seed(credentials.secret.encode()).verify(b"n0nce", signature)
    with_token = shown(Login(nkey=credentials.secret, token="t", user="x", password="y"), nonce="n0nce")
    assert with_token == given | {"auth_token": "t"}


def test_files_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    """A seed that is none and a file without a JWT are told from a server that is not there."""
    path = tmp_path / "file"
    path.write_text("nothing of the kind")
    for login in (Login(nkey="SNONSENSE"), Login(nkey_file=str(path)), Login(creds_file=str(path))):
        with pytest.raises(BusError):
            shown(login)
    with pytest.raises(OSError, match="missing"):
        shown(Login(creds_file=str(tmp_path / "missing")))


def test_without_the_package_that_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has an nkey is told what to install; nobody else needs it."""
    missing: Any = None
    monkeypatch.setitem(sys.modules, "nkeys", missing)
    assert shown(Login(user="me", password="x")) == {"user": "me", "pass": "x"}
    with pytest.raises(Unsupported, match=r"pip install 'holdfast-kv\[nats\]'"):
        shown(Login(nkey="S"))


def test_words_of_a_server() -> None:
    """That a user is not let in is told from all else that a server may have against a connection."""
    for words in ("Authorization Violation", "User Authentication Expired", "user authentication revoked"):
        assert type(refusal(words)) is LoginRefused
    for words in ("Authentication Timeout", "maximum connections exceeded"):
        assert type(refusal(words)) is ServerComplaint


async def test_a_user_who_is_not_let_in(nats_server_with: StartServer) -> None:
    """A wrong password is refused, a right one in the address is percent-encoded, and so is a token."""
    server = await nats_server_with('authorization { user: me, password: "p@ss:/" }')
    for url in (server.url, server.url.replace("//", "//me:wrong@")):
        with pytest.raises(LoginRefused):
            await Connection().reach([f"127.0.0.1:{free_port()}", url])
    client = Connection()
    await client.reach(server.url.replace("//", "//me:p%40ss%3A%2F@"))
    await client.close()


CONTEXT = ssl.create_default_context()


@pytest.mark.parametrize(
    ("url", "login", "offer", "encrypted"),
    [
        ("nats://h", Login(), Info(), False),
        ("nats://h", Login(), Info(tls_available=True), False),
        ("nats://h", Login(), Info(tls_required=True), True),
        ("tls://h", Login(), Info(tls_available=True), True),
        ("tls://h", Login(), Info(), None),
        ("nats://h", Login(tls=CONTEXT), Info(tls_available=True), True),
        ("nats://h", Login(tls=CONTEXT), Info(tls_required=True), True),
        ("nats://h", Login(tls=CONTEXT), Info(), None),
        ("nats://h", Login(tls_first=True), Info(), None),
    ],
)
def test_when_it_is_encrypted(url: str, login: Login, offer: Info, encrypted: bool | None) -> None:
    """TLS is spoken when the server asks for it; if the user does, with it or not at all (None)."""
    if encrypted is None:
        with pytest.raises(BusError, match="TLS"):
            login.context(server_at(url), offer)
        return
    context = login.context(server_at(url), offer)
    assert (context is not None) is encrypted
    assert context is None or login.tls is None or context is login.tls


async def test_tls_is_not_given_up() -> None:
    """An address that asks for TLS gets it or nothing, and nothing is said before that."""
    async with scribe() as who:
        with pytest.raises(BusError, match="TLS"):
            await Connection().reach(who.url.replace("nats", "tls"))
        who.info = {"tls_required": True}
        who.greeting = b'INFO {"tls_required": true}\r\nMSG a'
        with pytest.raises(BusError, match="encrypted"):
            await Connection().reach(who.url)
        assert who.lines == []


@pytest.mark.parametrize(
    "factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_large_messages_through_tls(factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    """On both loops messages of every size come through an encrypted connection as sent, in order."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    sent = [secrets.token_bytes(size) for size in (0, 1, 70_000, 2, 1_000_000, 65_536, 3)]
    heard: list[bytes] = []

    async def exchange() -> None:
        async with nats_server(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}') as server:
            for url in (server.url, server.url.replace("nats", "tls")):
                client = Connection()
                await client.reach(url, Login(tls=ssl.create_default_context(cafile=certificate)))
                client.listen("there", lambda message: heard.append(message.data))
                assert all(client.send("there", data) for data in sent)
                await client.flush()
                await client.close()
            with pytest.raises(Untrusted, match="self-signed certificate"):
                await Connection().reach(server.url)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(exchange())
    assert heard == sent * 2


def _jwt(signer: Any, subject: str, name: str, claims: dict[str, Any]) -> str:
    """What an account's or operator's nkey says of another."""
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    issuer = signer.public_key.decode()
    body = {
        "jti": name,
        "iat": 1,
        "iss": issuer,
        "name": name,
        "sub": subject,
        "nats": {"version": 2} | claims,
    }
    text = ".".join(_base64(json.dumps(part).encode()) for part in (head, body))
    return f"{text}.{_base64(signer.sign(text.encode()))}"


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _pair(prefix: int) -> tuple[Any, str]:
    seed = nkeys.encode_seed(secrets.token_bytes(32), prefix)
    return nkeys.from_seed(seed), seed.decode()


async def test_a_file_of_credentials(nats_server_with: StartServer, tmp_path: Path) -> None:
    """A server that trusts an operator lets in a user whose file holds a JWT and its seed, and no other."""
    operator, _ = _pair(nkeys.PREFIX_BYTE_OPERATOR)
    account, _ = _pair(nkeys.PREFIX_BYTE_ACCOUNT)
    user, seed = _pair(nkeys.PREFIX_BYTE_USER)
    _, other = _pair(nkeys.PREFIX_BYTE_USER)
    operators, accounts, users = (one.public_key.decode() for one in (operator, account, user))
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    server = await nats_server_with(
        f"operator: {_jwt(operator, operators, 'O', {'type': 'operator'})}\nresolver: MEMORY\n"
        "resolver_preload: {"
        f"{accounts}: {_jwt(operator, accounts, 'A', {'type': 'account', 'limits': limits})}"
        "}\n"
    )
    jwt = _jwt(account, users, "U", {"type": "user", "subs": -1, "data": -1, "payload": -1})
    path = tmp_path / "user.creds"
    for one in (seed, other):
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{one}\n------END USER NKEY SEED------\n"
        )
        client = Connection()
        if one is seed:
            await client.reach(server.url, Login(creds_file=str(path)))
            await client.flush()
            await client.close()
        else:
            with pytest.raises(LoginRefused):
                await client.reach(server.url, Login(creds_file=str(path)))
