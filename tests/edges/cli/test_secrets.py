"""No secret is printed, logged or written, wherever it was given and whatever goes wrong.

Every secret here is made of pieces that all have the same mark, so that a part of one is found as well.
"""

from __future__ import annotations

import logging
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast import masking
from holdfast.edges.settings.read import shown
from tests.edges.running import Up
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.cli.conftest import Cli
    from tests.nats_fixtures import StartServer

pytestmark = pytest.mark.unmeasured

MARK = "s3cr3t"
SECRETS = {
    "plain": MARK,
    "escaped": f"{MARK}%23{MARK}",
    "hash": f"{MARK}#{MARK}",
    "slash": f"{MARK}/{MARK}",
    "digits and a slash": f"1{MARK}/{MARK}",
    "question": f"{MARK}?{MARK}",
    "question and equals": f"{MARK}?{MARK}={MARK}",
    "at": f"{MARK}@{MARK}",
    "comma": f"{MARK},{MARK}",
    "colon": f"{MARK}:{MARK}",
    "bracket": f"{MARK}[{MARK}",
    "scheme": f"{MARK}://{MARK}",
    "space": f"{MARK} {MARK}",
    "percent": f"{MARK}%{MARK}",
}
FORMS = {
    "password": "{scheme}://me:{secret}@127.0.0.1:{port}/db",
    "token": "{scheme}://{secret}@127.0.0.1:{port}",
    "no place": "{scheme}://me:{secret}",
    "option": "{scheme}://127.0.0.1:{port}/db?password={secret}",
    "option and password": "{scheme}://me:{secret}@127.0.0.1:{port}/db?sslmode=disable&password={secret}",
    "second server": "{scheme}://127.0.0.1:{port},{scheme}://me:{secret}@127.0.0.1:{port}",
}
SCHEMES = ("nats", "tls", "postgresql", "postgresql+asyncpg", "sqlite", "memory", "mysql")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("get", "k"),
    ("set", "k", "1", "--json"),
    ("doctor",),
    ("doctor", "--deep", "--json"),
    ("stats",),
    ("audit", "verify"),
    ("migrate", "current"),
    ("audit", "rotate"),
    ("rescue", "/nowhere/copy.db"),
)


def addresses(scheme: str) -> Iterator[str]:
    """URLs with a secret in every place, of servers that are not there."""
    for name, form in FORMS.items():
        for secret in SECRETS.values():
            if name == "token" and (scheme not in ("nats", "tls") or ":" in secret):
                continue  # what stands there is the name of a user
            if name == "no place" and "@" in secret:
                continue  # what stands behind that is the name of a host
            yield form.format(scheme=scheme, secret=secret, port=1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_of_a_secret_is_shown(scheme: str) -> None:
    """What messages show of an address has no part of a secret in it, also where it is no legal URL."""
    for url in addresses(scheme):
        assert MARK not in masking.shown(url), url
        assert MARK not in masking.hosts(url), url
        assert MARK not in shown(url), url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:x@host:5432/db?sslmode=require", "postgresql://me@host:5432/db?sslmode=require"),
        ("postgresql://me@h1:1,h2:2/db", "postgresql://me@h1:1,h2:2/db"),
        ("postgresql://host/db?user=me@there&password=x", "postgresql://host/db?user=me@there&password=***"),
        ("nats://token@host:4222", "nats://***@host:4222"),
        ("nats://me:x@host:4222,tls://you:y@[::1]:4223", "nats://me@host:4222, tls://you@[::1]:4223"),
        ("host:4222,other", "host:4222,other"),
        ("me:x@host:4222", "me@host:4222"),
        ("sqlite:////data/my store@home.db", "sqlite:////data/my store@home.db"),
    ],
)
def test_the_rest_of_an_address_is_shown(url: str, expected: str) -> None:
    """Who reads a message learns where the store or server is, and as whom."""
    assert masking.shown(url) == expected


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_commands_print_no_secret(
    cli: Cli,
    scheme: str,
    command: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command that fails says why in one line, without a traceback and without the secret."""
    monkeypatch.setattr(metadata, "entry_points", lambda **wanted: [])  # looking for engines takes 10 ms
    every = list(addresses(scheme))
    some = (
        every[SCHEMES.index(scheme) % 3 :: 3] if command[0] == "get" else every[COMMANDS.index(command) :: 9]
    )
    for url in some:
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="holdfast"):
            outcome = cli(
                *command, "--url", url, *(["--plugin", "p"] if command[0] in ("get", "set") else [])
            )
        assert outcome.code != 0, url
        assert MARK not in outcome.out + outcome.err + caplog.text, url


async def test_errors_in_a_program_hold_no_secret() -> None:
    """The error that a program gets, and all that led to it, can be logged with its traceback."""
    import traceback

    for scheme in ("nats", "postgresql"):
        for url in addresses(scheme):
            try:
                async with holdfast.open(url):
                    raise AssertionError(url)
            except holdfast.HoldfastError as error:
                lines = [line for line in traceback.format_exception(error) if not line.startswith("  File")]
                assert MARK not in "".join(lines), url


@pytest.mark.parametrize("scheme", ["nats", "postgresql"])
@pytest.mark.parametrize("secret", ["1/x", "x/y", "x?y", "x?y=z", "x#y"])
def test_a_secret_that_is_not_escaped_is_refused(scheme: str, secret: str) -> None:
    """An unescaped secret is refused: part of it would be read as a host."""
    with pytest.raises(holdfast.ValidationError, match="%2F"):
        holdfast.open(f"{scheme}://me:{secret}@127.0.0.1:1/db")


async def test_a_token_is_not_greeted_with(nats_server_with: StartServer, tmp_path: Path) -> None:
    """The greeting of a service that logs in with a token in the URL says where the server is."""
    server = await nats_server_with(f"authorization {{ token: {MARK} }}")
    up = Up(tmp_path, ("--nats", server.url.replace("://", f"://{MARK}@")), {"HOLDFAST_LOG_LEVEL": "DEBUG"})
    await up.start()
    await up.stop()
    assert f"NATS  {server.url.replace('://', '://***@')}" in up.said
    assert MARK not in "\n".join(up.said) + up.complaints


def written(folder: Path) -> dict[str, bytes]:
    """Everything in the files of a folder, except for the settings, which hold the secret."""
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "holdfast.toml"
    }


def environment_of(pid_file: Path) -> bytes:
    """The environment of a process that wrote its number to a file."""
    return Path(f"/proc/{int(pid_file.read_text())}/environ").read_bytes()


async def test_a_service_tells_no_secret(tmp_path: Path) -> None:
    """What `up` prints, logs and writes, and what its NATS server is given, holds no secret."""
    (tmp_path / "holdfast.toml").write_text(f'[nats]\npassword = "{MARK}"\nuser = "me"\ntoken = "{MARK}"\n')
    variables = {
        "HOLDFAST_AUDIT_KEY": f"{MARK}-{MARK}-{MARK}",
        "HOLDFAST_LOG_LEVEL": "DEBUG",
        "HOLDFAST_NATS_TOKEN": MARK,
        "PYTHONASYNCIODEBUG": "1",
    }
    up = Up(tmp_path, (), variables)
    await up.start()
    try:
        async with holdfast.open(up.url) as store:
            await store.set_policy("kv/p", {"audit": True})
            await store.kv("p").set("k", 1)
        [pid_file] = (tmp_path / "holdfast" / "nats").rglob("nats-server.pid")
        given = environment_of(pid_file)
        told = [await up.http("/readyz"), await up.http("/metrics")]
    finally:
        await up.stop()
    assert b"PATH=" in given
    assert b"HOLDFAST_" not in given
    assert MARK not in "\n".join(up.said) + up.complaints + str(told)
    assert [name for name, content in written(tmp_path).items() if MARK.encode() in content] == []


@pytest.mark.parametrize(
    "variables",
    [
        {"HOLDFAST_NATS": f"nats://{MARK}@127.0.0.1:{{port}}"},
        {"HOLDFAST_NATS": f"me:{MARK}@127.0.0.1:{{port}}"},
        {"HOLDFAST_NATS": f"nats://me:{MARK}#{MARK}/{MARK}@127.0.0.1:{{port}}"},
        {"HOLDFAST_DB": f"postgresql://me:{MARK}#{MARK}/{MARK}@127.0.0.1:{{port}}/db"},
        {"HOLDFAST_DB": f"postgresql://127.0.0.1:{{port}}/db?password={MARK}"},
        {"HOLDFAST_NATS_NKEY": f"SU{MARK.upper().replace('3', '4') * 9}"},
        {"HOLDFAST_AUDIT_KEY": MARK},
    ],
)
async def test_a_service_that_does_not_start_tells_no_secret(
    tmp_path: Path, variables: dict[str, Any]
) -> None:
    """What goes wrong at the start is told in one line without the secret and without a traceback."""
    filled = {name: value.format(port=free_port()) for name, value in variables.items()}
    up = Up(tmp_path, (), {**filled, "HOLDFAST_LOG_LEVEL": "DEBUG"})
    code, last = await up.ended()
    assert (code != 0, last.startswith("holdfast: ")) == (True, True)
    assert MARK not in up.complaints.lower().replace("4", "3")
    assert "Traceback" not in up.complaints
