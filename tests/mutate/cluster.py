"""Bugs in the cluster engine.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_NODES: Final = ("tests/engines/test_cluster.py", "tests/engines/test_cluster_faults.py")

_LOGIN: Final = ("tests/security/test_cluster.py",)

_FORWARDING: Final = ("tests/engines/test_cluster_forwarding.py",)

_OPERATORS: Final = ("tests/engines/test_cluster_operators.py",)

PLANTS: Final = (
    Plant(
        "a damaged snapshot is installed",
        "engines/cluster/snapshots.py",
        "        if digest.hexdigest() != note.sha256:\n",
        "        if False:\n",
        _OPERATORS,
    ),
    Plant(
        "a trimmed log is taken for whole",
        "engines/cluster/bringing.py",
        'message["seq"] == kept.seq or',
        "True or",
        _OPERATORS,
    ),
    Plant(
        "the contents are read after later messages",
        "engines/cluster/replica.py",
        "            if check:\n                await self._inspect(place, check)\n",
        "            if check:\n                asyncio.get_running_loop().call_later(\n"
        "                    0.05, lambda: asyncio.ensure_future(self._inspect(place, check))\n"
        "                )\n",
        _OPERATORS,
    ),
    Plant(
        "a second log is made for a lost one",
        "engines/cluster/stream.py",
        "        if known is not None:\n            raise _no_second",
        "        if False:\n            raise _no_second",
        _NODES,
    ),
    Plant(
        "a lease counts from the answer",
        "engines/cluster/shard.py",
        "return await self._saved(place, save, sent, milliseconds)",
        "return await self._saved(place, save, ticks(), milliseconds)",
        _NODES,
    ),
    Plant(
        "other nodes write while a lease runs",
        "engines/cluster/lease.py",
        "self._keep_off = now + milliseconds / 1000 * MARGIN",
        "self._keep_off = 0.0",
        _NODES,
    ),
    Plant(
        "a node keeps the lease that its message ends",
        "engines/cluster/shard.py",
        "self.lease.give_up()  # others may write",
        "pass  # others may write",
        _NODES,
    ),
    Plant(
        "a delivery is taken for the next message",
        "engines/cluster/replica.py",
        "return self._brought if self._brought.id == name else None",
        "return self._brought if self._brought.seq else None",
        _NODES,
    ),
    Plant(
        "replicas compare sequences alone",
        "engines/cluster/replica.py",
        "if entry.base != self.at:",
        "if entry.base.seq != self.at.seq:",
        _NODES,
    ),
    Plant(
        "a replica does not save its place",
        "engines/cluster/replica.py",
        "also=[*also, kept]",
        "also=also",
        _NODES,
    ),
    Plant(
        "a write without an answer is decided again",
        "engines/cluster/publishing.py",
        "                    return self._replica.stored(proposal.id)\n",
        "                    return None\n",
        _NODES,
    ),
    Plant(
        "a gap is passed over",
        "engines/cluster/replica.py",
        "        if entry.base.seq > self.at.seq:\n            return False\n",
        "        if entry.base.seq > self.at.seq:\n            return True\n",
        _NODES,
    ),
    Plant(
        "a node answers from its file after its lease",
        "engines/cluster/reading.py",
        "if left <= 0:",
        "if left <= 0 and not found:",
        _NODES,
    ),
    Plant(
        "a reader shows what the holder of the lease has not seen",
        "engines/cluster/reading.py",
        "                await self._reached(self._shard.replica.latest)\n",
        "",
        _NODES,
    ),
    Plant(
        "a reader takes no notice of a message that is being saved",
        "engines/cluster/reading.py",
        "await self._reached(self._shard.replica.latest)",
        "await self._reached(self._shard.replica.at.seq)",
        _NODES,
    ),
    Plant(
        "a reader trusts its own replica",
        "engines/cluster/reading.py",
        "                await self._confirmed()\n",
        "",
        _NODES,
    ),
    Plant(
        "a forwarded group is decided however late",
        "engines/cluster/forwarding.py",
        "        if any(self._foreign > name.after for name in names):\n            raise Moved\n",
        "",
        _FORWARDING,
    ),
    Plant(
        "a forwarded group without a reply is decided again",
        "engines/cluster/forwarding.py",
        "        if not sent.logged:\n            return _NOT_TAKEN\n",
        "        return _NOT_TAKEN\n",
        _FORWARDING,
    ),
    Plant(
        "groups that share a message hear each other's changes",
        "engines/cluster/write_queue.py",
        'number = asked.get((record.namespace, record.request_id or ""), first.get(record.namespace, 0))',
        "number = first.get(record.namespace, 0)",
        _FORWARDING,
    ),
    Plant(
        "a barrier is forwarded and not followed",
        "engines/cluster/forwarding.py",
        "                await self._shard.replica.reach(seq)\n",
        "                pass\n",
        _FORWARDING,
    ),
    Plant(
        "a node stays out when its disk has room again",
        "engines/cluster/shard.py",
        "        if applied and isinstance(self._halted, Unavailable):\n",
        "        if False:\n",
        _NODES,
    ),
    Plant(
        "a node with a wrong clock serves",
        "engines/cluster/answers.py",
        "wrong_clock(lead) if abs(lead) > MOST_SKEW else None",
        "None",
        _OPERATORS,
    ),
    Plant(
        "everybody may use JetStream",
        "edges/nats/cluster_server.py",
        '("$JS.>", "$JSC.>",',
        '("$JSC.>",',
        _LOGIN,
    ),
    Plant(
        "a message keeps the lease of the one before it",
        "engines/cluster/shard.py",
        "            milliseconds = 0 if self._way.wanted or self.lease.shared else LEASE_MS\n",
        "            milliseconds = LEASE_MS\n",
        _NODES,
    ),
)
"""All of them."""
