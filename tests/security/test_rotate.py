"""`holdfast nats config --rotate`: new credentials for one plugin, and not a byte of anything else.

The server that is told to reload is a real one, and other users' connections stay up meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import holdfast
from holdfast.edges import cli
from holdfast.edges.cli.commands import nats as nats_command
from holdfast.edges.nats.server import NatsServer, find
from holdfast.edges.nats.server_config import SERVICE, Permissions, credentials_of
from tests.edges.nats.ground import until
from tests.edges.running import holdfast_up
from tests.nats import Wire, connection
from tests.security.responders import holdfast_service
from tests.security.test_config_command import Said

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.bus.connection import Connection
    from holdfast.edges.nats.server_config import Credentials, Kind, Mode

USERS: Final = (
    *("--plugin", "trivia", "--plugin", "trivia:read", "--plugin", "quote-db", "--plugin", "triv"),
    *("--tenant", "acme/web", "--tenant", "acme/web:get,put", "--tenant", "trivia/web"),
)
PLAIN: Final = ("--plugin", "trivia", "--plugin", "trivia:read", "--plugin", "quote-db")
EDIT: Final = "\n# A line of the operator's own: größer\nlogtime_utc: true\n"


@pytest.fixture(params=["nkeys", "passwords"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """What users log in with."""
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def config(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs the command with arguments."""

    def run(*arguments: str | Path) -> Said:
        code = cli.run(["nats", "config", *map(str, arguments)])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def folder(config: Callable[..., Said], kind: Kind, tmp_path: Path) -> Path:
    """A folder that the command has written, and in which the operator has edited the configuration."""
    path = tmp_path / "bus"
    assert config(*USERS, "--credentials", kind, "--out", path).code == 0
    with (path / nats_command.NAME).open("a", encoding="utf-8") as file:
        file.write(EDIT)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file with what it holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ending(kind: Kind) -> str:
    """What files of credentials end in."""
    return "nk" if kind == "nkeys" else "password"


def shown(folder: Path, user: str, kind: Kind) -> Credentials:
    """The credentials of a user."""
    file = folder / nats_command.file_of(user, kind)
    return credentials_of(user, file.read_text().strip(), kind)


def test_rotating_a_plugin_changes_its_secrets_only(
    config: Callable[..., Said], folder: Path, kind: Kind
) -> None:
    """All users of the plugin have new secrets; every other byte of the folder is as it was."""
    before = contents(folder)
    users = {user: shown(folder, user, kind) for user in ("trivia", "trivia:read")}
    said = config("--rotate", "trivia", "--out", folder)
    assert (said.code, said.out) == (0, "")
    after = contents(folder)
    changed = {name for name in before if before[name] != after[name]}
    files = {f"plugins/trivia.{ending(kind)}", f"plugins/trivia.only.read.{ending(kind)}"}
    assert (set(after), changed) == (set(before), files | {nats_command.NAME})
    text = before[nats_command.NAME].decode()
    for user, old in users.items():
        new = shown(folder, user, kind)
        text = text.replace(old.public or old.secret, new.public or new.secret)
    assert after[nats_command.NAME].decode() == text
    assert text.endswith(EDIT)


def test_each_kind_of_user_can_be_rotated_alone(
    config: Callable[..., Said], folder: Path, kind: Kind
) -> None:
    """A user with few verbs can be renewed alone, and so can a project, the operator and the service."""
    for user in ("trivia:read", "acme/web:get,set", "OPERATOR", SERVICE):
        before = contents(folder)
        assert config("--rotate", user, "--out", folder).code == 0
        after = contents(folder)
        changed = {name for name in before if before[name] != after[name]}
        assert changed == {str(nats_command.file_of(user, kind)), nats_command.NAME}


def test_several_users_can_be_rotated_at_once(config: Callable[..., Said], folder: Path, kind: Kind) -> None:
    """The option may be given several times, and the document says what was renewed."""
    said = config("--rotate", "quote-db", "--rotate", "acme/web", "--out", folder, "--json")
    told = json.loads(said.out)
    assert told["configuration"] == str(folder / nats_command.NAME)
    assert [one["user"] for one in told["rotated"]] == ["acme/web", "acme/web:get,set", "quote-db"]
    assert told["rotated"][-1]["file"] == str(folder / f"plugins/quote-db.{ending(kind)}")
    assert "reload" in told["reload"]
    assert "secret" not in said.out


def test_rotated_files_are_private(config: Callable[..., Said], folder: Path) -> None:
    """Files that were replaced can be read by nobody else, and none is left over."""
    assert config("--rotate", "trivia", "--out", folder).code == 0
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert not [name for name in contents(folder) if name.endswith((".next", ".unfinished"))]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--rotate", "trivai"), "there are no credentials of 'trivai' in .*; did you mean trivia?"),
        (("--rotate", "zzzzz"), "there are HOLDFAST, OPERATOR, acme/web, "),
        (("--rotate", "trivia", "--rotate", "nobody"), "no credentials of 'nobody'"),
        (("--rotate", "quote-db:read"), "no credentials of 'quote-db:read'"),
        (("--rotate", "trivia", "--plugin", "trivia"), "only renews the credentials in the folder"),
        (("--rotate", "trivia", "--tls-cert", "cert.pem"), "only renews the credentials in the folder"),
    ],
)
def test_an_unknown_user_changes_nothing(
    config: Callable[..., Said], folder: Path, arguments: tuple[str, ...], told: str
) -> None:
    """A user that does not exist is named with the nearest that does, and every file stays as it is."""
    before = contents(folder)
    said = config(*arguments, "--out", folder)
    assert (said.code, said.out) == (2, "")
    assert re.search(told, said.err)
    assert contents(folder) == before


def test_rotation_needs_a_folder_with_a_configuration(config: Callable[..., Said], tmp_path: Path) -> None:
    """The folder has to be named, and to hold a configuration."""
    assert "--out" in config("--rotate", "trivia").err
    said = config("--rotate", "trivia", "--out", tmp_path)
    assert said.code == 2
    assert f"{tmp_path / nats_command.NAME} does not exist" in said.err


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_an_unreadable_configuration_is_named(
    config: Callable[..., Said], folder: Path, content: bytes | None
) -> None:
    """What is in the place of the configuration and is none is named."""
    path = folder / nats_command.NAME
    path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)
    said = config("--rotate", "trivia", "--out", folder)
    assert said.code == 2
    assert str(path) in said.err


def test_credentials_of_another_configuration_are_refused(
    config: Callable[..., Said], folder: Path, kind: Kind
) -> None:
    """Where the configuration does not know a user's file, that is said and nothing is changed."""
    secret = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4" if kind == "nkeys" else "other"
    (folder / nats_command.file_of("trivia", kind)).write_text(secret)
    before = contents(folder)
    said = config("--rotate", "trivia", "--out", folder)
    assert said.code == 2
    assert "does not have the credentials in" in said.err
    assert contents(folder) == before


def test_an_interrupted_rotation_is_completed_by_the_next(
    config: Callable[..., Said], folder: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process ends before the new secret is in its place, the next renewal goes on from there."""
    replace = Path.replace

    def full(path: Path, target: Path) -> Path:
        if path.name.endswith(".next"):
            raise OSError("interrupted")
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        assert config("--rotate", "quote-db", "--out", folder).code != 0
    stale = shown(folder, "quote-db", kind)
    text = (folder / nats_command.NAME).read_text(encoding="utf-8")
    assert (stale.public or stale.secret) not in text
    assert config("--rotate", "quote-db", "--out", folder).code == 0
    fresh = shown(folder, "quote-db", kind)
    text = (folder / nats_command.NAME).read_text(encoding="utf-8")
    assert text.count(f'"{fresh.public or fresh.secret}"') == 1
    assert not [name for name in contents(folder) if name.endswith(".next")]


@pytest.mark.parametrize("mode", ["accounts", "permissions"])
async def test_a_reload_admits_new_credentials_and_keeps_other_connections(
    config: Callable[..., Said], kind: Kind, mode: Mode, tmp_path: Path
) -> None:
    """After a reload the old credentials are refused and the new let in; all other connections stay up."""
    folder = tmp_path / "bus"
    assert config(*PLAIN, "--mode", mode, "--credentials", kind, "--out", folder).code == 0
    who = Permissions(("trivia", "trivia:read", "quote-db"), mode=mode)
    old = {user: shown(folder, user, kind) for user in who.users}
    async with contextlib.AsyncExitStack() as stack:
        server = NatsServer(tmp_path / "run", port=None, config=folder / nats_command.NAME)
        await stack.enter_async_context(server)
        await stack.enter_async_context(holdfast_service(server.url, old, who))
        other = await stack.enter_async_context(connection(server.url, old["quote-db"]))
        ended = await stack.enter_async_context(Wire.open(server.url, old["trivia"]))
        assert "nats-server --signal reload" in config("--rotate", "trivia", "--out", folder).err
        assert await _lets_in(server, old["trivia"])
        server.process.send_signal(signal.SIGHUP)
        await until(lambda: b"Reloaded server configuration" in server.log.read_bytes())
        for user in ("trivia", "trivia:read"):
            assert not await _lets_in(server, old[user])
            assert await _is_served(server, shown(folder, user, kind), "db.kv.trivia.get")
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(60):
                await ended.settle()
        assert await _is_served(other, old["quote-db"], "db.kv.quote-db.set")
        assert (other.is_connected, other.reconnects) == (True, 0)


async def test_the_server_of_holdfast_up_reloads_rotated_credentials(
    config: Callable[..., Said], kind: Kind, tmp_path: Path
) -> None:
    """The server that `holdfast up` started reloads the file that was renewed."""
    folder = tmp_path / "bus"
    assert config(*PLAIN, "--credentials", kind, "--out", folder).code == 0
    login = ["--nats-nkey", folder / "service.nk"] if kind == "nkeys" else ["--nats-user", SERVICE]
    secret = shown(folder, SERVICE, kind).secret
    variables = {"HOLDFAST_REPLY_MODE": "accounts"}
    variables |= {"HOLDFAST_NATS_PASSWORD": secret} if kind == "passwords" else {}
    options = ["--nats-config", folder / nats_command.NAME, *login]
    async with holdfast_up(tmp_path / "home", *options, **variables) as up:
        await _set(up.url, shown(folder, "trivia", kind), "trivia")
        assert config("--rotate", "trivia", "--out", folder).code == 0
        [pid] = (tmp_path / "home").rglob("nats-server.pid")
        reload = [str(find()), "--signal", f"reload={pid}"]
        await asyncio.to_thread(subprocess.run, reload, check=True, capture_output=True)
        log = pid.with_name("nats-server.log")
        await until(lambda: b"Reloaded server configuration" in log.read_bytes())
        await _set(up.url, shown(folder, "trivia", kind), "trivia")
        await _set(up.url, shown(folder, "quote-db", kind), "quote-db")
        assert "is gone" not in up.complaints


async def test_a_client_rereads_its_nkey_file_on_reconnect(
    config: Callable[..., Said], tmp_path: Path
) -> None:
    """A client that was given the file of an nkey reads it at its next attempt, and needs no restart."""
    folder = tmp_path / "bus"
    assert config(*PLAIN, "--out", folder).code == 0
    who = Permissions(("trivia", "trivia:read", "quote-db"))
    old = {user: shown(folder, user, "nkeys") for user in who.users}
    async with contextlib.AsyncExitStack() as stack:
        server = NatsServer(tmp_path / "run", port=None, config=folder / nats_command.NAME)
        await stack.enter_async_context(server)
        await stack.enter_async_context(holdfast_service(server.url, old, who))
        address = f"{server.url}?nkey={folder / 'plugins/trivia.nk'}&inbox=_INBOX.trivia"
        store = await stack.enter_async_context(holdfast.open(address))
        await store.kv("trivia").set("k", 1)
        assert config("--rotate", "trivia", "--out", folder).code == 0
        server.process.send_signal(signal.SIGHUP)
        await until(lambda: b"Reloaded server configuration" in server.log.read_bytes())
        async with asyncio.timeout(60):
            while await _unreachable(store):  # noqa: ASYNC110 - the store tells nobody when it is back
                await asyncio.sleep(0.02)
        await store.kv("trivia").set("k", 2)


async def _unreachable(store: holdfast.Store) -> bool:
    try:
        await store.ready()
    except holdfast.Unavailable:
        return True
    return False


async def _set(url: str, credentials: Credentials, plugin: str) -> None:
    """Log in and write."""
    async with connection(url, credentials) as client:
        assert await _is_served(client, credentials, f"db.kv.{plugin}.set")


async def _is_served(where: NatsServer | Connection, credentials: Credentials, subject: str) -> bool:
    """Whether the service answers a user, over a connection that there is or a new one."""
    if isinstance(where, NatsServer):
        async with connection(where.url, credentials) as fresh:
            return await _is_served(fresh, credentials, subject)
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    inbox = where.new_inbox()
    where.listen(inbox, lambda message: answers.put_nowait(message.data))
    assert where.send(subject, b'{"key":"k","value":1}', reply=inbox)
    async with asyncio.timeout(60):
        return bool(json.loads(await answers.get())["success"])


async def _lets_in(server: NatsServer, credentials: Credentials) -> bool:
    try:
        async with Wire.open(server.url, credentials):
            return True
    except ConnectionError:
        return False
