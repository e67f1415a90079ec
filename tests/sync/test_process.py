"""How a process with a store of `holdfast.sync` ends, and what its children get."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast.sync
from holdfast.testing.exact import present
from tests.sync.programs import ended, program, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "watch = kv.watch(); threading.Thread(target=lambda: next(watch, None), daemon=True).start()",
        "mirror = kv.mirror(); mirror.__enter__()",
        "lock = kv.lock('l'); lock.acquire()",
        "threading.Thread(target=lambda: (time.sleep(0.2), kv.set('late', 1), kv.get('late'))).start()",
        "print(len(kv.list().keys), end='')",
    ],
)
def test_program_that_does_not_close_ends_cleanly(tmp_path: Path, ending: str) -> None:
    """The process ends without an error, and what it wrote is stored."""
    path = tmp_path / "store.db"
    code, _, err = run("kv.set('k', 1)\n" + ending, path)
    assert (code, err) == (0, "")
    with holdfast.sync.open(path) as store:
        kv = store.kv("trivia")
        assert present(kv.get("k")).value == 1
        assert kv.exists("late") == ("late" in ending)


def test_ctrl_c_interrupts_a_waiting_call(tmp_path: Path) -> None:
    """Ctrl-C ends a wait at once with KeyboardInterrupt, and the program can go on."""
    process = program(
        """
        try:
            print("waiting", flush=True)
            next(kv.watch())
        except KeyboardInterrupt:
            kv.set("k", 2)
            print(kv.get("k").value, flush=True)
            raise
        """,
        tmp_path / "store.db",
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, err = ended(process)
    assert (out, process.returncode) == ("2\n", -signal.SIGINT)
    assert "KeyboardInterrupt" in err


def test_forked_child_gets_an_error_from_its_parents_store(tmp_path: Path) -> None:
    """A child gets a clear error from its parent's store and can open its own; the parent goes on."""
    code, out, err = run(
        """
        kv.set("k", 1)
        kv.get("k")
        child = os.fork()
        if child == 0:
            for call in (lambda: kv.get("k"), lambda: kv.set("k", 2), lambda: store.kv("x").list()):
                try:
                    call()
                    os._exit(1)
                except RuntimeError as error:
                    assert "after a fork, call holdfast.sync.open in the child" in str(error), error
            with holdfast.sync.open("memory://") as own:
                own.kv("a").set("k", 3)
                assert own.kv("a").get("k").value == 3
            with holdfast.sync.open(sys.argv[1]) as same:
                assert same.kv("trivia").incr("k").value == 2
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), kv.incr("k").value, kv.get("k").value)
        """,
        tmp_path / "store.db",
    )
    assert (code, out, err) == (0, "7 3 3\n", "")


def test_forked_child_does_not_keep_the_write_lock(tmp_path: Path) -> None:
    """A file that the parent has closed can be written to again, though a child of a fork lives on."""
    code, out, err = run(
        """
        kv.set("k", 1)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        store.close()
        with holdfast.sync.open(sys.argv[1]) as again:
            print(again.kv("trivia").incr("k").value)
        os.close(write)
        os.waitpid(child, 0)
        """,
        tmp_path / "store.db",
    )
    assert (code, out, err) == (0, "2\n", "")


def test_child_forked_during_an_open_can_open_a_store(tmp_path: Path) -> None:
    """The child opens a store of its own, whatever other threads of its parent were doing."""
    code, out, err = run(
        """
        import signal
        from holdfast.sync import thread
        with thread._process.starting:
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                with holdfast.sync.open("memory://") as own:
                    print(own.kv("a").set("k", 3).version, flush=True)
                os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        tmp_path / "store.db",
    )
    assert (code, out, err) == (0, "1\n0\n", "")


def test_fork_waits_for_a_module_import_on_the_loop(tmp_path: Path) -> None:
    """The lock of a module that is being imported would stay locked in the child, so the fork waits."""
    (tmp_path / "slow.py").write_text("import sys, time\nsys.began.set()\ntime.sleep(0.3)\n")
    code, out, err = run(
        """
        import signal
        sys.began = threading.Event()
        sys.path.insert(0, os.path.dirname(sys.argv[1]))
        threading.Thread(target=lambda: store._thread.call(lambda: __import__("slow")), daemon=True).start()
        sys.began.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            import slow
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), kv.set("k", 1).version)
        """,
        tmp_path / "store.db",
    )
    assert (code, out, err) == (0, "0 1\n", "")


def test_forked_child_keeps_no_lock_of_its_parent(tmp_path: Path) -> None:
    """Once the parent has closed the store, its child does not keep others from having the file alone."""
    code, out, err = run(
        """
        kv.set("k", 1)
        lock = store._handle._engine._lock
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(read, 1)
            os._exit(0)
        other = type(lock)(lock.path)
        print(other.acquire(), kv.incr("k").value)
        store.close()
        print(other.acquire())
        os.write(write, b".")
        os.waitpid(child, 0)
        """,
        tmp_path / "store.db",
    )
    assert (code, out, err) == (0, "False 2\nTrue\n", "")


def test_importing_holdfast_gives_access_to_sync() -> None:
    """`import holdfast` is enough to use `holdfast.sync`, and costs nothing until then."""
    code = (
        "import sys, holdfast; print('holdfast.sync' in sys.modules)\n"
        "with holdfast.sync.open('memory://') as store: print(store.kv('trivia').set('k', 1).version)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n1\n"
