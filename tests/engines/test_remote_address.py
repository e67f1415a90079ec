"""How a client finds its service: what a `nats://` URL may say, and what becomes of one that is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast
from holdfast.bus.address import NATS_OPTIONS, nats_address
from holdfast.bus.login import Login
from holdfast.edges.nats.server import NatsServer
from holdfast.errors import PermissionDenied, Unavailable, ValidationError
from holdfast.testing.exact import refusal
from tests.edges.nats.ground import calling, serving
from tests.nats_fixtures import StartServer

LOCKED = "authorization { user: trivia, password: t }"


async def test_opening_without_a_server_is_unavailable_and_hides_the_password(
    nats_server: NatsServer,
) -> None:
    """open() of a server that is not there is UNAVAILABLE, without the password; the next one is tried."""
    async with asyncio.timeout(60):
        with refusal(Unavailable, says="127.0.0.1:1") as caught:
            await holdfast.open("nats://me:secret@127.0.0.1:1?timeout=600").start()
    assert "secret" not in caught.value.message
    two = f"nats://127.0.0.1:1,{nats_server.url}?timeout=600"
    async with asyncio.timeout(60), holdfast.open(two) as store:
        with refusal(Unavailable, says="no Holdfast service"):
            await store.kv("trivia").get("k")


async def test_a_wrong_password_is_permission_denied(nats_server_with: StartServer) -> None:
    """A user whom the server does not let in is told so at once, not that there is no server."""
    server = await nats_server_with(LOCKED)
    async with asyncio.timeout(60):
        for login in ("trivia:wrong", "nobody:t"):
            with refusal(PermissionDenied, says="does not admit this user"):
                await holdfast.open(
                    f"{server.url.replace('nats://', f'nats://{login}@')}?timeout=600"
                ).start()


def test_every_option_of_a_client_can_be_in_the_url(tmp_path: Path) -> None:
    """Everything that a client can be told is in the URL; a missing file is refused by its option."""
    seed = tmp_path / "seed"
    seed.write_text("SUAM")
    address = nats_address(
        f"nats://me:pw@one:4222, nats://two?prefix=rosey.db&inbox=_INBOX.trivia&timeout=2.5&nkey={seed}"
    )
    assert address.servers == ["nats://me:pw@one:4222", "nats://two"]
    assert (address.prefix, address.inbox, address.timeout) == ("rosey.db", "_INBOX.trivia", 2.5)
    assert address.shown == "one:4222, two"
    assert address.login() == Login(nkey_file=str(seed))
    for option in ("creds", "nkey", "tls_ca", "tls_cert"):
        with refusal(ValidationError, field="url", says=option):
            nats_address(f"nats://h?{option}={tmp_path}/none").login()
    with refusal(ValidationError, field="url", says="tls_ca"):
        nats_address(f"tls://h?tls_ca={seed}").login()
    with refusal(ValidationError, field="url", says="needs tls_cert"):
        nats_address(f"nats://h?tls_key={seed}").login()
    assert nats_address("nats://h?tls_first=true").login() == Login(tls_first=True)
    assert nats_address("nats://h?tls_first=false").login() == Login()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nats://h?colour=red", "'colour'"),
        ("nats://h?Timeout=5", "'Timeout'"),
        ("nats://h?timeout=0", "timeout"),
        ("nats://h?timeout=-1", "timeout"),
        ("nats://h?timeout=soon", "timeout"),
        ("nats://h?timeout=nan", "timeout"),
        ("nats://h?timeout=inf", "timeout"),
        ("nats://h?timeout=3601", "timeout"),
        ("nats://h?timeout=", "timeout"),
        ("nats://h?prefix=a%20b", "prefix"),
        ("nats://h?prefix=a%0D%0APUB", "prefix"),
        ("nats://h?prefix=", "prefix"),
        ("nats://h?inbox=_INBOX.*", "inbox"),
        ("nats://h?inbox=_INBOX.", "inbox"),
        ("nats://h?tls_first=1", "tls_first"),
        ("nats://h?tls_first=", "tls_first"),
    ],
)
def test_a_bad_url_names_the_known_options_and_bounds(url: str, says: str) -> None:
    """An unknown option is refused with those that are known, a bad timeout with its bounds."""
    with refusal(ValidationError, field="url", says=says) as caught:
        holdfast.open(url)
    if "unknown option" in caught.value.message:
        assert all(name in caught.value.message for name in NATS_OPTIONS)


async def test_another_prefix_is_another_service(nats_server: NatsServer) -> None:
    """A client asks under the prefix that its URL names."""
    async with serving(nats_server.url), calling(nats_server.url) as caller:
        async with holdfast.open(f"{nats_server.url}?prefix=rosey.db") as store:
            await store.kv("trivia").set("k", 1)
        async with holdfast.open(f"{nats_server.url}?prefix=elsewhere") as store:
            with refusal(Unavailable, says="elsewhere.kv.trivia.get"):
                await store.kv("trivia").get("k")
        assert (await caller.ask("db.kv.trivia.get", {"key": "k"}))["value"] == 1
