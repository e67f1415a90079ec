"""The programs in `examples` do what they say at their tops, on a file and against a service.

What a program must print is read from its own docstring. Programs run as a user runs them: as processes,
in an empty folder, with nothing but `HOLDFAST_URL` to tell them where the store is. An interpreter is started
for the first run of each; further runs are forked.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import signal
import sys
from pathlib import Path
from typing import Final

import pytest

import holdfast
from tests.docs.test_examples import ROOT
from tests.edges.running import holdfast_up
from tests.forking import completed

FOLDER: Final = ROOT / "examples"
PROGRAMS: Final = sorted(path.stem for path in FOLDER.glob("*.py"))
FOLLOWER: Final = "memory_follower"
WORKER: Final = "import_worker"
LOCK: Final = "lock/import"
FOR_EVER: Final = "600"
"""A pause after a record, in seconds, that the test does not wait for."""


def told(program: str) -> list[str]:
    """What stands indented at the top of a program: how it is called, then what its runs print."""
    text = ast.get_docstring(ast.parse((FOLDER / f"{program}.py").read_text(encoding="utf-8")))
    assert text is not None, program
    blocks = re.findall(r"(?:^    .*\n?)+", text + "\n", re.MULTILINE)
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks]


def environment(url: str | None) -> dict[str, str]:
    """What a program finds in its environment: none of the user's settings, and where the store is."""
    unwanted = ("HOLDFAST_", "NATS_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return kept | ({} if url is None else {"HOLDFAST_URL": url})


async def start(program: str, folder: Path, url: str | None, *arguments: str) -> asyncio.subprocess.Process:
    """Start a program in a folder."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(FOLDER / f"{program}.py"),
        *arguments,
        cwd=folder,
        env=environment(url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def printed(program: str, folder: Path, url: str | None) -> str:
    """Run a program to its end; what it prints."""
    path = str(FOLDER / f"{program}.py")
    done = await asyncio.to_thread(completed, path, env=environment(url), cwd=folder)
    assert (done.returncode, done.stderr) == (0, ""), program
    return done.stdout


async def printed_first(program: str, folder: Path) -> str:
    """The same, in an interpreter that is started for it."""
    process = await start(program, folder, None)
    output, complaints = await process.communicate()
    assert (process.returncode, complaints.decode()) == (0, ""), program
    return output.decode()


async def first_line(process: asyncio.subprocess.Process) -> str:
    """Wait for the first line that a program prints."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode()


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_program_prints_what_it_says(program: str, tmp_path: Path) -> None:
    """Run twice on a file, a program prints what its top says, and so finds again what it has stored."""
    calls, first, second = told(program)[:3]
    assert f"python examples/{program}.py\n" in calls
    assert await printed_first(program, tmp_path) == first
    assert await printed(program, tmp_path, None) == second
    assert (tmp_path / f"{program}.db").is_file()


async def test_programs_do_the_same_through_a_service(tmp_path: Path) -> None:
    """All programs at once against one service, twice, print what they print on a file, and make no file."""
    folder = tmp_path / "programs"
    folder.mkdir()
    async with holdfast_up(tmp_path / "service") as up:
        for run in (1, 2):
            outputs = await asyncio.gather(*(printed(program, folder, up.url) for program in PROGRAMS))
            for program, output in zip(PROGRAMS, outputs, strict=True):
                assert output == told(program)[run], program
        assert list(folder.iterdir()) == []
        await taken_over(folder, up.url)


async def test_programs_do_the_same_on_postgresql(pg_url: str, tmp_path: Path) -> None:
    """All programs at once on one empty database print what they print on a file."""
    outputs = await asyncio.gather(*(printed(program, tmp_path, pg_url) for program in PROGRAMS))
    assert outputs == [told(program)[1] for program in PROGRAMS]


async def taken_over(folder: Path, url: str) -> None:
    """A worker that was stopped while another took over writes nothing more: each record is counted once."""
    async with holdfast.open(url) as store:
        kv = store.kv("import-worker")
        await kv.delete_many(["done", "total"])
        old = await start(WORKER, folder, url, "0.5")
        assert await first_line(old) == "record 1\n"
        old.send_signal(signal.SIGSTOP)
        await kv.delete(LOCK)  # as if the stop had lasted longer than the lease
    new = (await printed(WORKER, folder, url)).splitlines()
    old.send_signal(signal.SIGCONT)
    output, complaints = await old.communicate()
    *records, last = ["record 1", *output.decode().splitlines()]
    assert (f"{last}\n", complaints.decode(), old.returncode) == (told(WORKER)[3], "", 1)
    assert [*records, *new] == told(WORKER)[1].splitlines()


async def test_the_worker_resumes_after_it_was_killed(tmp_path: Path) -> None:
    """A worker that was killed after its first record is followed by one that goes on with the second."""
    process = await start(WORKER, tmp_path, None, FOR_EVER)
    assert await first_line(process) == "record 1\n"
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    async with holdfast.open(tmp_path / f"{WORKER}.db") as store:
        assert await store.kv("import-worker").delete(LOCK), "a worker that was killed leaves its lock behind"
    resumed = await printed(WORKER, tmp_path, None)
    assert resumed == told(WORKER)[1].removeprefix("record 1\n")


async def test_the_follower_begins_anew_after_a_gap(tmp_path: Path) -> None:
    """A follower whose cursor is from another life of the store makes its index anew, with nothing old."""
    await printed(FOLLOWER, tmp_path, None)
    async with holdfast.open(tmp_path / f"{FOLLOWER}.db") as store:
        index = store.kv("memory-index")
        await index.set("memory/ada/gone", "stale")
        await index.set("cursor/memories", 1000)
    first, *_, last = (await printed(FOLLOWER, tmp_path, None)).splitlines()
    assert first == "following from version 1000"
    assert last == told(FOLLOWER)[2].splitlines()[-1]


def test_both_pages_list_every_program() -> None:
    """A reader of the folder or the documentation finds all programs; the five are short enough to read."""
    pages = [
        path.read_text(encoding="utf-8")
        for path in (FOLDER / "README.md", ROOT / "docs/tutorial/examples.md")
    ]
    here, there = (dict(re.findall(r"^\| .?(\w+)\.py\S+ \| (.+) \|$", page, re.MULTILINE)) for page in pages)
    assert here == there
    assert sorted(here) == PROGRAMS
    assert len(PROGRAMS) == 5
    workers = sorted(path.name for path in (FOLDER / "workers").glob("*.py"))
    assert workers
    for page in pages:
        assert sorted(re.findall(r"^\| .?workers/(\w+\.py)", page, re.MULTILINE)) == workers
    for program in PROGRAMS:
        assert 30 <= len((FOLDER / f"{program}.py").read_text(encoding="utf-8").splitlines()) <= 90, program
