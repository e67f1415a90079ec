"""What `holdfast up` says to try: the line does what it says in the shell that it was printed in.

Each line is run by `sh` as it stands, with the variables of the shell that started the service.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from holdfast.edges import cli
from holdfast.edges.greeting import PLACEHOLDER, greeting, program
from holdfast.edges.settings.read import read_config
from tests.edges.running import PATIENCE, Up, holdfast_up
from tests.nats import nats_server

pytestmark = pytest.mark.unmeasured

ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPTS: Final = Path(sys.executable).parent


def path(*, with_scripts: bool) -> str:
    """Return a PATH that has this environment's programs, or has not."""
    others = [one for one in os.environ["PATH"].split(os.pathsep) if Path(one) != SCRIPTS]
    return os.pathsep.join([str(SCRIPTS), *others] if with_scripts else others)


def to_try(said: list[str]) -> str:
    """Return the command of the line to try."""
    [line] = [line for line in said if line.startswith("Try ")]
    return line.removeprefix("Try ").strip()


async def tried(up: Up, **variables: str) -> None:
    """Run the command of the line in the shell that started the service: it must succeed.

    Where nothing is said about the PATH, it has this environment's programs.
    """
    shell = await asyncio.create_subprocess_exec(
        *("sh", "-c", to_try(up.said)),
        env={**os.environ, "PATH": path(with_scripts=True), "XDG_DATA_HOME": str(up.home), **variables},
        cwd=up.home,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, complaint = await asyncio.wait_for(shell.communicate(), PATIENCE)
    assert (shell.returncode, complaint) == (0, b"")


async def test_commands_find_a_store_in_another_folder(tmp_path: Path) -> None:
    """The command for a token names the store if it is not the one that commands find by themselves."""
    folder = tmp_path / "else where"
    async with holdfast_up(tmp_path, "--data-dir", str(folder)) as up:
        [line] = [line for line in up.said if "token create" in line]
        assert line.endswith(f" token create --url '{folder}/holdfast.db')")
        command = line.rpartition(": ")[2].removesuffix(")")
        shell = await asyncio.create_subprocess_exec(
            *("sh", "-c", f"{command} --plugin demo"),
            env={**os.environ, "XDG_DATA_HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await asyncio.wait_for(shell.communicate(), PATIENCE)
        assert shell.returncode == 0
        assert b"hf_" in printed
        async with holdfast.open(up.url) as store:
            assert len(await store.tokens().list()) == 1


async def stored(up: Up, plugin: str) -> object:
    """Return what was tried, as the store has it once the service has stopped."""
    await up.stop()
    async with holdfast.open(up.home / "holdfast" / "holdfast.db") as store:
        entry = await store.kv(plugin).get("greeting")
    return entry and entry.value


@pytest.mark.parametrize("with_scripts", [True, False])
async def test_the_command_is_found(tmp_path: Path, with_scripts: bool) -> None:
    """On the PATH it is called by its name; where the PATH has it not, as with `./dev up`, by its place."""
    variables = {"PATH": path(with_scripts=with_scripts)}
    async with holdfast_up(tmp_path, **variables) as up:
        program = "holdfast" if with_scripts else SCRIPTS / "holdfast"
        assert to_try(up.said).startswith(f"{program} ")
        assert any(line.strip().startswith(f"({program} nats config ") for line in up.said)
        assert any(line.endswith(f"others do: {program} token create)") for line in up.said)
        await tried(up, **variables)
        assert await stored(up, "demo") == "hello"


class DevUp(Up):
    """A `./dev up` in another folder than the repository's."""

    def _command(self) -> list[str]:
        return [str(ROOT / "dev"), *super()._command()[3:]]


async def test_the_command_that_dev_up_prints_works_in_that_shell(tmp_path: Path) -> None:
    """`./dev up` prints a command for the shell that it was typed into, where no environment is active."""
    variables = {"PATH": path(with_scripts=False)}
    up = DevUp(tmp_path, (), variables)
    await up.start()
    try:
        await tried(up, **variables)
        assert await stored(up, "demo") == "hello"
    finally:
        await up.stop()


@pytest.mark.parametrize("kind", ["nkeys", "passwords"])
@pytest.mark.parametrize("mode", ["accounts", "permissions"])
async def test_with_generated_credentials_a_plugins_file_is_named(
    tmp_path: Path, mode: str, kind: str
) -> None:
    """Where plugins are kept apart, the line logs in as one of them, with its file; no secret is shown."""
    folder = tmp_path / "bus files"
    plugins = ["--plugin", "trivia", "--plugin", "quotes"]
    assert (
        cli.run(["nats", "config", *plugins, "--mode", mode, "--credentials", kind, "--out", str(folder)])
        == 0
    )
    variables = {"HOLDFAST_REPLY_MODE": mode}
    if kind == "nkeys":
        login = ["--nats-nkey", str(folder / "service.nk")]
    else:
        login = ["--nats-user", "HOLDFAST"]
        variables["HOLDFAST_NATS_PASSWORD"] = (folder / "service.password").read_text().strip()
    async with holdfast_up(tmp_path, "--nats-config", folder / "nats-server.conf", *login, **variables) as up:
        secrets = [file.read_text().strip() for file in folder.rglob("*.*") if file.suffix != ".conf"]
        assert not any(secret in line for secret in secrets for line in up.said)
        await tried(up)
        assert await stored(up, "quotes") == "hello"


async def test_with_a_password_its_variable_is_named(tmp_path: Path) -> None:
    """A password that the shell has in a variable is taken from there."""
    variables = {"HOLDFAST_NATS_PASSWORD": "s3cret"}
    async with (
        nats_server(config='authorization { user: "me", password: "s3cret" }') as server,
        holdfast_up(tmp_path, "--nats", server.url, "--nats-user", "me", **variables) as up,
    ):
        assert '"nats://me:$HOLDFAST_NATS_PASSWORD@127.0.0.1' in to_try(up.said)
        await tried(up, **variables)
        assert await stored(up, "demo") == "hello"


@pytest.mark.parametrize(
    ("settings", "variables", "shown"),
    [
        ({"nats_creds": "/a b/s.creds"}, {}, "'nats://bus:4222?creds=/a+b/s.creds'"),
        ({"nats_nkey": "/s.nk", "nats_tls_ca": "/ca"}, {}, "'nats://bus:4222?nkey=/s.nk&tls_ca=/ca'"),
        ({"nats_tls_first": True}, {}, "'nats://bus:4222?tls_first=true'"),
        ({"nats_token": "t0ken"}, {"NATS_TOKEN": "t0ken"}, '"nats://$NATS_TOKEN@bus:4222"'),
        ({"nats_token": "t/en"}, {"NATS_TOKEN": "t/en"}, f"nats://{PLACEHOLDER}@bus:4222"),
        ({"nats_user": "me", "nats_password": "x"}, {}, f"nats://me:{PLACEHOLDER}@bus:4222"),
        ({"nats": "nats://me:x@bus:4222"}, {}, f"nats://me:{PLACEHOLDER}@bus:4222"),
        ({"nats": "nats://x@bus:4222"}, {}, f"nats://{PLACEHOLDER}@bus:4222"),
        ({"nats": "nats://me:x@bus:4222"}, {"NATS_URL": "nats://me:x@bus:4222"}, '"$NATS_URL"'),
        ({"nats": "tls://bus:1,tls://bus:2"}, {}, "tls://bus:1"),
        ({"nats": "bus:4222", "subject_prefixes": ["env"]}, {}, "'nats://bus:4222?prefix=env'"),
    ],
)
def test_every_way_to_log_in(
    settings: dict[str, Any],
    variables: dict[str, str],
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The URL names the files and variables that hold what is needed; a secret is never shown."""
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = read_config(environment={}, **{"nats": "nats://bus:4222", **settings})
    lines = list(greeting(config, str(config.nats), []))
    assert to_try(lines).endswith(f" --plugin demo --url {shown}")
    assert any(f"in the place of {PLACEHOLDER}" in line for line in lines) == (PLACEHOLDER in shown)


def test_without_a_script_the_interpreter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that has the package but no command beside it is called with the module's name."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my python"))
    monkeypatch.setattr(sys, "argv", ["-m"])
    assert program() == f"'{tmp_path / 'my python'}' -m holdfast"
