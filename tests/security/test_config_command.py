"""`holdfast nats config`: what it prints is a configuration, what it writes is for its owner's eyes only.

What it says comes next is done here, word for word.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import nkeys  # type: ignore[import-untyped]
import pytest

import holdfast
from holdfast.edges import cli
from holdfast.edges.nats.server import find
from holdfast.errors import PermissionDenied
from tests.edges.test_link import CERTIFICATE, KEY
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USERS: Final = ("--plugin", "trivia", "--plugin", "quote-db", "--tenant", "acme/web")
FILES: Final = ("service", "operator", "plugins/trivia", "plugins/quote-db", "tenants/acme/web")


class Said:
    """What a command has left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


@pytest.fixture
def config(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs the command with arguments."""
    monkeypatch.delitem(sys.modules, "pydantic", raising=False)  # commands do not have it

    def run(*arguments: str | Path) -> Said:
        code = cli.run(["nats", "config", *map(str, arguments)])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def written(config: Callable[..., Said], tmp_path: Path) -> Path:
    """A folder that the command has written."""
    folder = tmp_path / "bus"
    assert config(*USERS, "--out", folder).code == 0
    return folder


@pytest.mark.parametrize("mode", ["accounts", "permissions"])
@pytest.mark.parametrize("kind", ["nkeys", "passwords"])
def test_stdout_has_the_configuration_only(
    config: Callable[..., Said], mode: str, kind: str, tmp_path: Path
) -> None:
    """Nothing but the configuration goes to stdout, so that it can be sent into a file."""
    said = config(*USERS, "--mode", mode, "--credentials", kind)
    path = tmp_path / "nats-server.conf"
    path.write_text(said.out)
    loaded = subprocess.run([str(find()), "-t", "-c", str(path)], capture_output=True, text=True, check=False)
    assert (said.code, loaded.returncode) == (0, 0), loaded.stderr
    assert "holdfast: next: " in said.err


def test_printed_seeds_fit_the_configuration(config: Callable[..., Said]) -> None:
    """Each user's seed is told on stderr; the configuration holds only its public half."""
    said = config(*USERS)
    seeds = dict(re.findall(r"^(\S+)\t(SU\S+)$", said.err, re.MULTILINE))
    assert list(seeds) == ["HOLDFAST", "OPERATOR", "trivia", "quote-db", "acme/web"]
    for seed in seeds.values():
        assert seed not in said.out
        assert f'nkey: "{nkeys.from_seed(seed.encode()).public_key.decode()}"' in said.out


@pytest.mark.parametrize(("kind", "ending"), [("nkeys", "nk"), ("passwords", "password")])
def test_files_are_for_their_owner_alone(
    config: Callable[..., Said], kind: str, ending: str, tmp_path: Path
) -> None:
    """There is one file for each user and one for the server, which nobody else can read."""
    assert config(*USERS, "--credentials", kind, "--out", tmp_path / "bus").code == 0
    files = {
        str(path.relative_to(tmp_path / "bus")): stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "bus").rglob("*")
        if path.is_file()
    }
    assert files == dict.fromkeys(["nats-server.conf", *(f"{name}.{ending}" for name in FILES)], 0o600)


def test_an_existing_configuration_needs_force(config: Callable[..., Said], written: Path) -> None:
    """A configuration that is there stays as it is unless --force is given."""
    before = {path: path.read_bytes() for path in written.rglob("*") if path.is_file()}
    said = config("--plugin", "other", "--out", written)
    assert (said.code, said.out) == (2, "")
    assert "--force" in said.err
    assert {path: path.read_bytes() for path in written.rglob("*") if path.is_file()} == before


def test_adding_a_plugin_keeps_existing_credentials(config: Callable[..., Said], written: Path) -> None:
    """Credentials that were given out stay good when the configuration is made anew."""
    before = {path: path.read_bytes() for path in written.rglob("*.nk")}
    known = re.findall(r'nkey: "(U\w+)"', (written / "nats-server.conf").read_text())
    assert config(*USERS, "--plugin", "new", "--out", written, "--force").code == 0
    after = {path: path.read_bytes() for path in written.rglob("*.nk")}
    assert after.items() > before.items()
    assert set(after) - set(before) == {written / "plugins/new.nk"}
    assert set(re.findall(r'nkey: "(U\w+)"', (written / "nats-server.conf").read_text())) > set(known)


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"\xff"])
def test_damaged_credentials_are_not_used(config: Callable[..., Said], written: Path, content: bytes) -> None:
    """A file that holds no seed is named, and nothing is written."""
    (written / "plugins/trivia.nk").write_bytes(content)
    before = (written / "nats-server.conf").read_bytes()
    said = config(*USERS, "--out", written, "--force")
    assert said.code == 2
    assert "plugins/trivia.nk does not hold the credentials of trivia" in said.err
    assert (written / "nats-server.conf").read_bytes() == before


def test_a_folder_that_can_not_be_written_is_named(config: Callable[..., Said], tmp_path: Path) -> None:
    """What the operating system refuses is told with the path."""
    (tmp_path / "file").write_text("")
    said = config(*USERS, "--out", tmp_path / "file" / "bus")
    assert said.code != 0
    assert str(tmp_path / "file" / "bus") in said.err


def test_a_file_that_can_not_be_written_is_named(config: Callable[..., Said], tmp_path: Path) -> None:
    """A folder in the place of the configuration is told with its path."""
    (tmp_path / "nats-server.conf").mkdir()
    said = config(*USERS, "--out", tmp_path, "--force")
    assert said.code != 0
    assert str(tmp_path / "nats-server.conf") in said.err


def test_a_file_that_can_not_be_read_is_named(config: Callable[..., Said], tmp_path: Path) -> None:
    """A folder in the place of credentials is told with its path."""
    (tmp_path / "service.nk").mkdir()
    said = config(*USERS, "--out", tmp_path)
    assert said.code != 0
    assert str(tmp_path / "service.nk") in said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "at least one plugin"),
        (("--plugin", "Trivia"), "Plugin name 'Trivia'"),
        (("--tenant", "acme"), "project"),
        (("--plugin", "a", "--trusted", "b"), "'b' is trusted"),
        (("--plugin", "a", "--prefix", "x", "--prefix", "x.y"), "'x.y' lies within 'x'"),
        (("--plugin", "a", "--mode", "other"), "other"),
        (("--plugin", "a:reed"), "did you mean 'read'"),
        (("--plugin", "a", "--connections", "0"), "connections must be a whole number from 1"),
        (("--plugin", "a", "--connections", "1.5"), "connections must be a whole number from 1"),
        (("--plugin", "a", "--listen", "nowhere"), "listen must be host:port"),
        (("--plugin", "a", "--listen", "host:0"), "listen must be host:port"),
        (("--plugin", "a", "--listen", 'a"b:1'), "listen must be host:port"),
        (("--plugin", "a", "--tls-ca", "x"), "give --tls-cert"),
        (("--plugin", "a", "--tls-first"), "give --tls-cert"),
        (("--plugin", "a", "--tls-cert", "x"), "--tls-cert and --tls-key go together"),
        (("--plugin", "a", "--tls-key", "x"), "--tls-cert and --tls-key go together"),
        (("--plugin", "a", "--tls-cert", "x", "--tls-key", "y"), "x and y can't be read as a certificate"),
        (("--plugin", "a", "--tls-cert", "x", "--tls-key", "y", "--tls-verify"), "needs --tls-ca"),
    ],
)
def test_mistakes_on_the_command_line_are_named(
    config: Callable[..., Said], arguments: tuple[str, ...], told: str
) -> None:
    """A mistake on the command line is named, and no configuration is printed."""
    said = config(*arguments)
    assert (said.code, said.out) == (2, "")
    assert told in said.err


def test_the_printed_steps_name_other_prefixes(config: Callable[..., Said], tmp_path: Path) -> None:
    """A service and a client that use other prefixes are told them."""
    said = config("--tenant", "acme/web", "--prefix", "x.y", "--credentials", "passwords", "--out", tmp_path)
    assert "HOLDFAST_SUBJECT_PREFIXES=x.y" in said.err
    assert "nats://acme.web:PASSWORD@127.0.0.1:4222?inbox=_INBOX.acme.web&prefix=x.y" in said.err


@pytest.mark.parametrize(
    ("listen", "service"),
    [
        ("0.0.0.0:4333", "nats://127.0.0.1:4333"),
        ("[::]:4222", "nats://[::1]:4222"),
        ("bus.example:4333", "nats://bus.example:4333"),
        ("[::1]:4222", "nats://[::1]:4222"),
    ],
)
def test_the_printed_steps_start_a_server_at_another_address(
    config: Callable[..., Said], tmp_path: Path, listen: str, service: str
) -> None:
    """`up` starts servers on 127.0.0.1 alone. For any other address the steps start one and connect to it."""
    said = config("--plugin", "trivia", "--listen", listen, "--out", tmp_path / "bus")
    assert f"next: nats-server --config {tmp_path}/bus/nats-server.conf\n" in said.err
    login = f"--nats {service} --nats-nkey {tmp_path}/bus/service.nk"
    assert f"then: HOLDFAST_REPLY_MODE=accounts holdfast up {login}\n" in said.err


@pytest.fixture(
    params=[
        ("--mode", "accounts", "--credentials", "nkeys", "--own-connection", "trivia"),
        ("--mode", "permissions", "--credentials", "nkeys", "--own-connection", "trivia"),
        ("--mode", "permissions", "--credentials", "passwords"),
        ("--tls-cert", "CERT", "--tls-key", "KEY", "--tls-ca", "CERT", "--tls-first"),
    ],
    ids=["accounts", "permissions", "passwords", "tls"],
)
def up(
    request: pytest.FixtureRequest, config: Callable[..., Said], tmp_path: Path
) -> Iterator[dict[str, str]]:
    """The service, started as the command says; what the users open it with."""
    (tmp_path / "certificate.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    files = {"CERT": str(tmp_path / "certificate.pem"), "KEY": str(tmp_path / "key.pem")}
    options = [files.get(word, word) for word in request.param]
    listen = f"127.0.0.1:{free_port()}"
    said = config(*USERS, *options, "--listen", listen, "--out", tmp_path / "bus")
    [step] = re.findall(r"next: (.*)", said.err)
    [address] = re.findall(r"trivia then opens (.*)", said.err)
    program = shlex.quote(str(Path(sys.executable).with_name("holdfast")))
    run = step.replace("holdfast up", f"exec {program} up")
    settings = f"--http-port 0 --data-dir {shlex.quote(str(tmp_path / 'data'))}"
    process = subprocess.Popen(["sh", "-c", f"{run} {settings}"], stdout=subprocess.PIPE, env=_bare())
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield {"trivia": _filled(address, tmp_path / "bus")}
    finally:
        process.terminate()
        process.communicate(timeout=60)


async def test_the_printed_steps_open_a_store_with_the_data_of_the_plugin(
    up: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """After the printed step the printed address opens a store with the plugin's own data, and no other's.

    The doctor agrees, also about a server that begins with TLS.
    """
    async with holdfast.open(up["trivia"]) as store:
        await store.ready()
        await store.kv("trivia").set("k", 1)
        entry = await store.kv("trivia").get("k")
        assert entry is not None
        assert entry.value == 1
        async with asyncio.timeout(60):
            with pytest.raises((PermissionDenied, holdfast.Unavailable)):
                await store.kv("quote-db").get("k")
    assert await asyncio.to_thread(cli.run, ["doctor", "--json", "--url", up["trivia"]]) == 0
    found = {one["check"]: one["level"] for one in json.loads(capsys.readouterr().out)["checks"]}
    assert (found["store"], found["nats"], found["access"]) == ("ok", "ok", "ok")


def _bare() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST", "NATS"))}


def _filled(address: str, folder: Path) -> str:
    """The address with the password that its user would put there."""
    path = folder / "plugins/trivia.password"
    return address.replace("PASSWORD", path.read_text().strip()) if path.exists() else address
