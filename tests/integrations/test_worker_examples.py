"""The programs in `examples/workers`: several processes on one SQLite file, as their users start them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver
from tests.ports import free_port

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples/workers"
WORKERS: Final = 4
REQUESTS: Final = 24
PATIENCE: Final = 60.0

pytestmark = [
    pytest.mark.unmeasured,  # the lines of the integrations are covered by their other tests
    pytest.mark.timeout(300),
]


@contextlib.asynccontextmanager
async def running(*command: str, store: Path, **options: Any) -> AsyncIterator[Process]:
    """Run a program on a store for the length of a block."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        cwd=store.parent,
        env={**kept, "HOLDFAST_URL": str(store), "HOME": str(store.parent)},
        **options,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def served(*command: str, store: Path) -> AsyncIterator[str]:
    """Run a web server with workers for the length of a block, once it answers: its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    arguments = [argument.format(port=port) for argument in command]
    async with running(*arguments, store=store) as process, asyncio.timeout(PATIENCE):
        while True:
            assert process.returncode is None, "the server has ended"
            try:
                async with httpx.AsyncClient() as client:
                    await client.get(address)
            except httpx.TransportError:
                await asyncio.sleep(0.05)
            else:
                break
        yield address


def gunicorn(application: str, *options: str) -> tuple[str, ...]:
    """The command that serves a WSGI application with four workers."""
    return (
        *("-m", "gunicorn", "--workers", str(WORKERS), "--bind", "127.0.0.1:{port}"),
        *("--pythonpath", str(EXAMPLES), "--log-level", "error", "--no-control-socket"),
        *(*options, application),
    )


def visitor() -> httpx.AsyncClient:
    """A client with cookies of its own, each of whose requests may meet another worker."""
    return httpx.AsyncClient(timeout=PATIENCE, limits=httpx.Limits(max_keepalive_connections=0))


def kill(worker: int) -> None:
    """Kill a worker, and wait until it has ended."""
    ended = os.pidfd_open(worker)
    os.kill(worker, signal.SIGKILL)
    readable, _, _ = select.select([ended], [], [], PATIENCE)
    os.close(ended)
    assert readable


async def shop_in_turn(address: str) -> list[dict[str, Any]]:
    """Have three visitors of the Django shop buy, each one article after the other; a worker is killed."""
    async with visitor() as ada, visitor() as bob, visitor() as eve:

        async def buy(client: httpx.AsyncClient) -> list[dict[str, Any]]:
            answers = []
            for number in range(1, REQUESTS + 1):
                answer = (await client.get(f"{address}/buy/rope")).raise_for_status().json()
                assert answer["basket"] == {"rope": number}
                answers.append(answer)
            return answers

        answers = await buy(ada)
        kill(answers[-1]["worker"])
        later = await asyncio.gather(buy(bob), buy(eve))
        again = (await ada.get(f"{address}/buy/rope")).json()
        assert again["basket"] == {"rope": REQUESTS + 1}
    return [*answers, *later[0], *later[1], again]


async def test_django_with_gunicorn(tmp_path: Path) -> None:
    """Four workers share sessions and a cache in a file: no purchase is lost, also if a worker is killed."""
    async with served(*gunicorn("django_shop:application"), store=tmp_path / "shop.db") as address:
        answers = await shop_in_turn(address)
    assert sorted(answer["sold"] for answer in answers) == list(range(1, 3 * REQUESTS + 2))
    assert len({answer["worker"] for answer in answers}) > 1


async def test_a_store_that_was_open_before_the_fork(tmp_path: Path) -> None:
    """With `--preload`, Django's stores just work; a store of the program's own is refused with a reason."""
    store = tmp_path / "shop.db"
    command = gunicorn("tests.integrations.early_app:application", "--preload")
    root = str(EXAMPLES.parents[1])
    async with served(*command, "--pythonpath", f"{EXAMPLES},{root}", store=store) as address:
        answers = await shop_in_turn(address)
        async with visitor() as client:
            refusals = {(await client.get(f"{address}/early")).text for _ in range(8)}
    assert sorted(answer["sold"] for answer in answers) == list(range(1, 3 * REQUESTS + 2))
    [refusal] = refusals
    assert refusal.startswith("refused: ")
    assert "after a fork, call holdfast.sync.open in the child" in refusal


async def test_starlette_with_uvicorn(tmp_path: Path) -> None:
    """Four workers share a visitor's session: of requests that meet at once, none is lost."""
    command = ("-m", "uvicorn", "--workers", str(WORKERS), "--app-dir", str(EXAMPLES), "--port", "{port}")
    quiet = ("--log-level", "error", "starlette_shop:app")
    async with (
        served(*command, *quiet, store=tmp_path / "shop.db") as address,
        visitor() as client,
    ):
        (await client.post(f"{address}/enter")).raise_for_status()

        async def buy() -> list[dict[str, Any]]:
            answers = await asyncio.gather(*(client.post(f"{address}/buy/rope") for _ in range(REQUESTS)))
            return [answer.raise_for_status().json() for answer in answers]

        answers = await buy()
        kill(answers[-1]["worker"])
        answers += await buy()
    assert sorted(answer["sold"] for answer in answers) == list(range(1, 2 * REQUESTS + 1))
    assert sorted(len(answer["basket"]) for answer in answers) == list(range(1, 2 * REQUESTS + 1))
    assert len({answer["worker"] for answer in answers}) > 1


async def test_two_langgraph_workers(tmp_path: Path) -> None:
    """Two workers write each report once. If one is killed, the other goes on after its last step."""
    store, program = tmp_path / "agents.db", str(EXAMPLES / "langgraph_worker.py")
    pipe = {"stdout": asyncio.subprocess.PIPE}
    printed: dict[str, list[str]] = {"ada": [], "grace": []}

    async def first_written(name: str, worker: Process) -> str:
        assert worker.stdout is not None
        while not (said := (await worker.stdout.readline()).decode()).startswith(f"{name}: write "):
            assert said
            printed[name].append(said.strip())
        return said.split()[-1]

    async with (
        asyncio.timeout(4 * PATIENCE),
        running(program, "ada", store=store, **pipe) as ada,
        running(program, "grace", store=store, **pipe) as grace,
    ):
        workers = {"ada": ada, "grace": grace}
        watched = {asyncio.create_task(first_written(name, worker)): name for name, worker in workers.items()}
        [first, *_], others = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        killed = workers.pop(watched[first])
        killed.kill()
        title = await first
        [(name, other)] = workers.items()
        for task in others:
            task.cancel()
        await asyncio.wait(watched)
        printed[name] += (await other.communicate())[0].decode().splitlines()
        assert other.returncode == 0
    assert f"{name}: write {title}" in printed[name]
    assert f"{name}: research {title}" not in printed[name]
    async with holdfast.open(store) as opened:
        saver = HoldfastSaver(opened)
        for number in range(1, 7):
            thread: Any = {"configurable": {"thread_id": f"report-{number}"}}
            kept = await saver.aget_tuple(thread)
            assert kept is not None
            steps = kept.checkpoint["channel_values"]["steps"]
            assert [step.split()[0] for step in steps] == ["research", "write"]
