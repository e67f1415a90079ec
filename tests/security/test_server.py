"""The server that Holdfast brings along: it starts when asked, says what is in its way, and ends for sure."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.edges.nats import server as module
from holdfast.edges.nats.server import LEAST_VERSION, NatsServer, defaults_on, find, version
from holdfast.errors import Unavailable, Unsupported, ValidationError
from tests.nats import library_client
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.nats_fixtures import StartServer

ABANDON = """
import asyncio, os, sys
from pathlib import Path
from holdfast.edges.nats.server import NatsServer

async def abandon():
    server = NatsServer(Path(sys.argv[1]), port=int(sys.argv[2]))
    await server.start()
    print(server.process.pid, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(abandon())
"""


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago."""
    return free_port()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        number: int = other.getsockname()[1]
        yield number


async def test_start_serves_clients_and_stop_frees_the_port(tmp_path: Path, port: int) -> None:
    """After start() clients are served at the url; after stop() the port is free again."""
    async with NatsServer(tmp_path, port=port) as server:
        assert server.url == f"nats://127.0.0.1:{port}"
        async with library_client(server.url) as client:
            await client.flush()
    assert server.process.returncode is not None
    with socket.create_server(("127.0.0.1", port)):
        pass
    await server.stop()


async def test_the_server_listens_on_localhost_only(nats_server: NatsServer) -> None:
    """The server listens on 127.0.0.1, not on every address, which would be its own default."""
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.2", nats_server.port)


async def test_a_killed_server_restarts_at_the_same_port(nats_server: NatsServer) -> None:
    """A free port is chosen once: a server that died is started again where clients look for it."""
    url = nats_server.url
    nats_server.process.kill()
    await nats_server.process.wait()
    await nats_server.start()
    assert nats_server.url == url
    async with library_client(url) as client:
        await client.flush()


async def test_a_taken_port_is_named_with_its_flag(tmp_path: Path, taken: int) -> None:
    """Who can't have the port learns which it is and how to choose another."""
    with pytest.raises(Unavailable, match=rf"port {taken} .* another program; .* --nats-port"):
        await NatsServer(tmp_path, port=taken).start()


async def test_a_second_holdfast_does_not_stop_the_first_server(tmp_path: Path, port: int) -> None:
    """A server whose owner lives is not ended by another that wants the same folder and port."""
    async with NatsServer(tmp_path, port=port) as first:
        with pytest.raises(Unavailable, match=r"another Holdfast; .* --nats-port"):
            await NatsServer(tmp_path, port=port).start()
        async with library_client(first.url) as client:
            await client.flush()


async def test_a_server_left_by_a_killed_holdfast_is_stopped(tmp_path: Path, port: int) -> None:
    """After kill -9 the next start gets the port back from the server that was left running."""
    command = [sys.executable, "-c", ABANDON, str(tmp_path), str(port)]
    abandoned = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    said, _ = await abandoned.communicate()
    assert abandoned.returncode == -signal.SIGKILL
    async with NatsServer(tmp_path, port=port) as server:
        assert server.process.pid != int(said)
        async with library_client(server.url) as client:
            await client.flush()


@pytest.mark.parametrize(("name", "pid"), [("holdfast-other", "1"), ("holdfast-other", "no number")])
async def test_a_server_of_another_program_is_not_stopped(
    nats_server: NatsServer, tmp_path: Path, name: str, pid: str
) -> None:
    """A server that does not bear the name given out here is not ended, whatever the pid file says."""
    folder = tmp_path / str(nats_server.port)
    folder.mkdir()
    (folder / "nats-server.name").write_text(name)
    (folder / "nats-server.pid").write_text(pid)
    with pytest.raises(Unavailable, match="another program"):
        await NatsServer(tmp_path, port=nats_server.port).start()
    async with library_client(nats_server.url) as client:
        await client.flush()


async def test_a_bad_configuration_names_the_log(tmp_path: Path) -> None:
    """A server that refuses its configuration is not waited for; the log says why."""
    server = NatsServer(tmp_path, port=None, config="max_payload: nonsense")
    with pytest.raises(Unavailable, match="exited at once") as caught:
        await server.start()
    assert str(server.log) in caught.value.message
    assert "nats-server.conf:1" in server.log.read_text()


async def test_a_port_beside_its_own_that_is_taken_is_named(tmp_path: Path) -> None:
    """A server that can't have one of its other ports ends, and the error says which one that was."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = NatsServer(tmp_path, port=None, config=f'http: "127.0.0.1:{port}"')
        with pytest.raises(Unavailable, match=f"at once: .*:{port}: bind: address already in use; see"):
            await server.start()


async def test_an_error_in_the_configuration_is_not_quoted(tmp_path: Path) -> None:
    """It may contain a piece of a password, such as one that begins with `$` and was not quoted."""
    server = NatsServer(tmp_path, port=None, config="authorization {user: a, password: $ecret}")
    with pytest.raises(Unavailable, match="at once; see"):
        await server.start()
    assert "ecret" in server.log.read_text()


async def test_a_server_that_does_not_get_ready_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting has an end, and leaves no process."""
    monkeypatch.setattr(module, "_START_SECONDS", 0.05)
    monkeypatch.setattr(NatsServer, "_announced", lambda server, pid: None)
    server = NatsServer(tmp_path, port=None)
    with pytest.raises(Unavailable, match="did not become ready"):
        await server.start()
    assert server.process.returncode is not None


async def test_a_server_that_does_not_end_is_killed(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stop() returns, also when the server ignores the request to end."""
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.05)
    nats_server.process.send_signal(signal.SIGSTOP)
    await nats_server.stop()
    assert nats_server.process.returncode == -signal.SIGKILL


async def test_the_folder_of_the_server_is_private(tmp_path: Path) -> None:
    """The configuration may hold passwords: nobody else can read it, or the folder."""
    folder = tmp_path / "nats"
    async with NatsServer(folder, port=None, config="max_payload: 1MB"):
        paths = (folder, folder / "nats-server.conf")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == {"nats": 0o700, "nats-server.conf": 0o600}


async def test_a_configuration_file_is_read_on_reload_and_restart(tmp_path: Path) -> None:
    """A server that was given a file reads it when it is told to reload, and when it is started again."""
    file = tmp_path / "a folder" / "mine.conf"
    file.parent.mkdir()
    file.write_text("max_payload: 1000")
    async with NatsServer(tmp_path / "nats", port=None, config=file) as server:
        assert await _max_payload(server) == 1000
        file.write_text("max_payload: 2000")
        server.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            while await _max_payload(server) != 2000:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
        await server.stop()
        file.write_text("max_payload: 3000")
        await server.start()
        assert await _max_payload(server) == 3000


async def _max_payload(server: NatsServer) -> int:
    async with library_client(server.url) as client:
        return client.max_payload


async def test_port_and_process_are_unknown_before_the_start(tmp_path: Path) -> None:
    """The port and the process of a server that was never started are not made up."""
    server = NatsServer(tmp_path, port=None)
    with pytest.raises(RuntimeError, match="free port"):
        _ = server.url
    with pytest.raises(RuntimeError, match="not been started"):
        _ = server.process
    await server.stop()


@pytest.mark.parametrize("number", [0, -1, 65_536])
def test_an_impossible_port_is_refused(number: int, tmp_path: Path) -> None:
    """A number that is no port is said to be none before anything is started."""
    with pytest.raises(ValidationError, match=f"from 1 to 65535, not {number}"):
        NatsServer(tmp_path, port=number)


def test_the_packaged_server_is_new_enough_for_permissions() -> None:
    """What the extra brings is new enough for permissions to hold."""
    assert version() >= LEAST_VERSION


def test_without_the_package_the_path_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nats-server that was installed otherwise serves as well; without any, the extra is named."""
    monkeypatch.setattr(importlib.metadata, "files", _no_package)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match=r"pip install 'holdfast-kv\[server\]'"):
        find()
    program = _program(tmp_path, "v2.14.0")
    assert (find(), version()) == (program, (2, 14, 0))


async def test_an_old_server_is_refused_where_permissions_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not keep permissions apart is not started with a configuration."""
    monkeypatch.setattr(module, "find", lambda: _program(tmp_path, "v2.9.3"))
    with pytest.raises(Unsupported, match=r"2\.9\.3 .* 2\.14 or newer"):
        await NatsServer(tmp_path, port=None, config="max_payload: 1MB").start()


def test_a_program_that_says_no_version_is_refused(tmp_path: Path) -> None:
    """What does not say its version is not taken for a nats-server."""
    with pytest.raises(Unsupported, match="does not say"):
        version(_program(tmp_path, "hello"))


def test_a_replaced_server_program_is_asked_for_its_version_again(tmp_path: Path) -> None:
    """A nats-server says its version once; one that was installed in its place says its own."""
    for changed, said in ((1, "v2.14.0"), (2, "v2.15.1"), (1, "nothing")):
        program = _program(tmp_path, said)
        os.utime(program, (changed, changed))
        assert version(program) == ((2, 14, 0) if changed == 1 else (2, 15, 1))


def test_on_two_cores_the_server_uses_one_thread() -> None:
    """A server beside its service and its clients on two cores does not take both; on more it decides."""
    assert defaults_on(1, apart=False) == defaults_on(2, apart=False) == {"GOMAXPROCS": "1"}
    assert defaults_on(3, apart=False) == defaults_on(64, apart=False) == {}


def test_a_server_with_isolated_users_has_several_threads() -> None:
    """A server that any of its users may flood has several threads, so that the others get their turns."""
    assert defaults_on(1, apart=True) == {"GOMAXPROCS": "2"}
    assert defaults_on(2, apart=True) == {"GOMAXPROCS": "4"}
    assert defaults_on(3, apart=True) == defaults_on(64, apart=True) == {}


def _variables_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(line.split("=", 1) for line in lines if line)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("chosen", [None, "7"])
async def test_environment_variables_of_the_user_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, apart: bool
) -> None:
    """The server runs with the variables of this process; those of ours only fill in."""
    monkeypatch.delenv("GOMAXPROCS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("GOMAXPROCS", chosen)
    monkeypatch.setenv("PASSED_ON_BY_A_TEST", "yes")
    config = tmp_path / "nats.conf"
    config.write_text("max_payload: 1MB\n")
    async with NatsServer(tmp_path / "run", port=None, config=config if apart else None) as server:
        found = await asyncio.to_thread(_variables_of, server.process.pid)
    ours = defaults_on(len(os.sched_getaffinity(0)), apart=apart)
    assert found.get("GOMAXPROCS") == (chosen or ours.get("GOMAXPROCS"))
    assert found["PASSED_ON_BY_A_TEST"] == "yes"


async def test_several_servers_run_at_once(nats_server_with: StartServer) -> None:
    """Servers on free ports do not get in each other's way."""
    servers = [await nats_server_with(None) for _ in range(3)]
    assert len({server.url for server in servers}) == 3


def _no_package(name: str) -> None:
    raise importlib.metadata.PackageNotFoundError(name)


def _program(folder: Path, says: str) -> Path:
    program = folder / "nats-server"
    program.write_text(f"#!/bin/sh\necho 'nats-server: {says}'\n")
    program.chmod(0o755)
    return program
