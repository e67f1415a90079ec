"""A worker that counts each record once, however often it is killed and however many of it are running.

    python examples/import_worker.py
    HOLDFAST_URL=nats://127.0.0.1:4222 python examples/import_worker.py

The first run prints

    record 1
    record 2
    record 3
    record 4
    record 5
    done: 5 records, 150 in all

and the second, which finds nothing left to do,

    done: 5 records, 150 in all

Give it a pause in seconds after each record, as in `python examples/import_worker.py 2`, and kill it. The
next one goes on behind the last record that was counted, after three seconds at most: so long does the lock
of a worker that was killed last. A worker that lost its lock to another one writes nothing more, and prints

    another worker has taken over
"""

import asyncio
import os
import sys

import holdfast

RECORDS = [10, 20, 30, 40, 50]  # stands for the lines of a file, or the pages of a feed
LEASE = 3  # seconds: longer than a pause of the program or its network, shorter than you like to wait
WHY = {"purpose": "checkpoint", "producer": "import-worker"}


async def work(kv: holdfast.KV, pause: float) -> None:
    """Count all records that are left, as the only worker that does so."""
    async with kv.lock("import", ttl=LEASE, owner=f"worker-{os.getpid()}") as lock:
        done = await kv.get("done")
        for number in range(done.value + 1 if done else 1, len(RECORDS) + 1):
            # The result and the checkpoint are one write, so no record is counted twice or left out. The
            # fence refuses it if this worker was stopped, has lost the lock, and does not know it yet.
            await kv.batch(
                writes=[
                    {"key": "total", "incr": RECORDS[number - 1]},
                    {"key": "done", "value": number, "semantics": WHY},
                ],
                fence=lock.fence,
            )
            print("record", number, flush=True)
            await asyncio.sleep(pause)


async def main(pause: float) -> int:
    """Work, and say how far the import has come; the exit code."""
    async with holdfast.open(os.environ.get("HOLDFAST_URL", "import_worker.db")) as store:
        kv = store.kv("import-worker")
        try:
            await work(kv, pause)
        except holdfast.Fenced:  # LockLost is one, too: the lock was lost during the pause
            print("another worker has taken over")
            return 1
        done, total = await kv.get("done"), await kv.get("total")
        assert done is not None
        assert total is not None
        print(f"done: {done.value} records, {total.value} in all")
        return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 0)))
