"""`holdfast cluster`: the nodes of a cluster, its log and its snapshots.

Nothing here opens a replica. The nodes are asked over NATS, and answer for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter, Token

from holdfast.clock import moment
from holdfast.edges.cli.options import seconds
from holdfast.edges.cli.output import ERROR, OK, document, line, rows, say
from holdfast.edges.cli.target import STORE, Place
from holdfast.edges.nats.cluster_server import system_login
from holdfast.edges.settings.read import read_config
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.membership import LogServers, NotForgotten, forget
from holdfast.engines.cluster.operators import ClusterOperator, ClusterStatus, GoneNode, NodeStatus
from holdfast.engines.cluster.reports import SnapshotNote
from holdfast.errors import ValidationError


def _waiting(kind: object, tokens: Sequence[Token]) -> Any:
    """Parse how long to wait."""
    wait = seconds(kind, tokens)
    if not 0 < wait <= 86_400:
        raise ValidationError("wait must be more than 0 and at most 86400 seconds", field="wait")
    return wait


Patience = Annotated[float, Parameter(converter=_waiting)]

FORGET_SECONDS: Final = 20.0
"""How long servers may take to agree that one of them is gone."""

_NODES: Final = ("host", "pid", "node", "version", "clock ms", "shard", "at", "behind", "state", "bytes")
_SNAPSHOTS: Final = ("shard", "at", "made", "bytes", "stored", "id")


async def status(*, target: Place = STORE) -> int:
    """Show the nodes of a cluster, its shards and their owners, its log, its snapshots, and what is wrong.

    Nodes and NATS servers that have died are named with their hosts. A node that was not stopped properly
    counts as gone until it is back, for a day. The exit code is 1 if something is wrong.
    """
    async with _operator(target) as operator:
        state = await operator.status()
    if target.json:
        document(state)
    else:
        _show(state)
    return ERROR if state.troubles else OK


async def verify(*, wait: Patience = 60, target: Place = STORE) -> int:
    """Compare all replicas of a cluster: each node hashes its rows, all at the same place in the log.

    Nodes go on serving meanwhile. The exit code is 1 if two replicas differ or a node did not answer.

    Parameters
    ----------
    wait
        Seconds to wait for the nodes; 60 if not given.
    """
    async with _operator(target) as operator:
        verification = await operator.verify(seconds=wait)
    if target.json:
        document({"equal": verification.equal, **msgspec.structs.asdict(verification)})
        return OK if verification.equal else ERROR
    cells = (
        (one.shard, one.seq, one.host, one.node, one.rows, one.error or one.hash)
        for one in verification.contents
    )
    rows(("shard", "at", "host", "node", "rows", "hash"), cells)
    for shard in verification.differing:
        say(f"the replicas of shard {shard} do not hold the same rows", colour="red")
    for node in verification.stopped:
        say(f"the node on {node} does not serve: holdfast cluster status says why", colour="red")
    for node in verification.silent:
        say(f"the node on {node} did not answer in time", colour="red")
    if verification.equal:
        say("all replicas hold the same rows")
    return OK if verification.equal else ERROR


async def snapshot(*, wait: Patience = 600, target: Place = STORE) -> None:
    """Make a snapshot of every shard, keep it in JetStream, and trim the log behind it.

    A node that is new or far behind begins with the newest snapshot. Two of each shard are kept.

    Parameters
    ----------
    wait
        Seconds to wait; 600 if not given.
    """
    async with _operator(target) as operator:
        done = await operator.snapshot(seconds=wait)
    if target.json:
        document(done)
        return
    rows(_SNAPSHOTS, map(_snapshot_cells, done.snapshots))
    say(f"snapshots: {len(done.snapshots)}; messages trimmed from the log: {done.trimmed}")


async def grow(*, to: int = 3, wait: Patience = 600, target: Place = STORE) -> None:
    """Keep the log and the snapshots of a cluster on more NATS servers.

    The servers must already form a NATS cluster. Nodes go on serving meanwhile.

    Parameters
    ----------
    to
        The number of servers that are to keep the log; 3 if not given.
    wait
        Seconds to wait until all of them have it; 600 if not given.
    """
    async with _operator(target) as operator:
        _show_servers(await operator.membership.grow(to, seconds=wait), target)


async def add(*, wait: Patience = 600, target: Place = STORE) -> None:
    """Keep the log of a cluster on machines that have joined it.

    Start Holdfast on the new machine, before this or while it waits. A single machine that joins three is
    kept in reserve; two make five. Nodes go on serving meanwhile.

    Parameters
    ----------
    wait
        Seconds to wait until the new machine is there and has the log; 600 if not given.
    """
    name = cluster_address(_url(target)).name

    def waits() -> None:
        say(
            f"no new machine has joined {name}. On that machine, with the secret and the certificates of the "
            f"others, run: holdfast up --cluster {name} --peers HOST,HOST,HOST"
        )

    async with _operator(target) as operator:
        done = await operator.membership.add(seconds=wait, on_wait=waits)
    _show_servers(done, target)
    if target.json:
        return
    if done.gone:
        say(f"{done.spare[0]} has joined: holdfast cluster remove {done.gone[0]} lets it replace that one")
    elif done.spare:
        say(
            f"in reserve: {', '.join(done.spare)}. holdfast cluster remove SERVER lets it replace another; "
            "with a further machine, the log survives one more loss"
        )


async def remove(server: str, /, *, wait: Patience = 600, target: Place = STORE) -> None:
    """Move the log of a cluster off a NATS server that is gone or that you want to remove.

    Start the other server first. Nodes go on serving meanwhile. Servers that `holdfast up --cluster` started
    forget the removed one, if this runs on one of their machines with the setting cluster_secret.

    Parameters
    ----------
    server
        The name of the server, as `holdfast cluster status` shows it.
    wait
        Seconds to wait until the other one has the log; 600 if not given.
    """
    why = None
    async with _operator(target) as operator:
        done = await operator.membership.kept()
        if server in done.servers or not await _counted(target, server):
            done = await operator.membership.remove(server, seconds=wait)
            try:
                await _forgotten(target, server)
            except NotForgotten as refusal:
                why = str(refusal)
    _show_servers(msgspec.structs.replace(done, forgotten=why is None), target)
    if why is None:
        say(f"the other servers no longer count {server}: stop it if it runs")
    else:
        say(
            f"{server} still counts for the majority of the NATS servers ({why}): when it is stopped, run "
            f"nats server cluster peer-remove {server} with a user of the system account"
        )


async def _counted(target: Place, server: str) -> bool:
    """Have the servers forget one that does not keep the log. Return whether they did."""
    try:
        return await _forgotten(target, server)
    except NotForgotten:
        return False


async def _forgotten(target: Place, server: str) -> bool:
    """Have the servers forget one of them. Return whether they counted it."""
    secret = read_config().cluster_secret
    if secret is None:
        raise NotForgotten("cluster_secret is not set")
    user, password = system_login(secret)
    address = cluster_address(_url(target))
    return await forget(address, server, user=user, password=password, seconds=FORGET_SECONDS)


def _show_servers(done: LogServers, target: Place) -> None:
    if target.json:
        document(done)
        return
    say(f"the log is {'now' if done.changed else 'already'} kept by {', '.join(done.servers)}")


def _operator(target: Place) -> ClusterOperator:
    return ClusterOperator(cluster_address(_url(target)))


def _url(target: Place) -> str:
    if not target.address.startswith("cluster://"):
        raise ValidationError("name the cluster with --url cluster://HOST,HOST,HOST/NAME", field="url")
    return target.address


def _show(state: ClusterStatus) -> None:
    log = state.log
    followers = (f"{name} (gone)" if name in log.gone else name for name in log.followers)
    kept = f"kept by {', '.join([log.leader or 'no leader', *followers])}"
    line(f"log of {state.name}: messages {log.first} to {log.last}, {log.bytes} bytes, {kept}")
    rows(
        _NODES,
        [
            *(cells for node in state.nodes for cells in _node_cells(node)),
            *map(_gone_cells, state.gone_nodes),
        ],
    )
    if state.snapshots:
        rows(_SNAPSHOTS, map(_snapshot_cells, state.snapshots))
    for trouble in state.troubles:
        say(trouble, colour="red")


def _node_cells(node: NodeStatus) -> Iterator[tuple[str | int, ...]]:
    report = node.report
    for shard in report.shards:
        state = "stopped" if shard.stopped else "leads" if shard.leads else "follows"
        yield (
            *(report.host, report.pid, report.node, report.version, node.offset_ms),
            *(shard.shard, shard.seq, shard.behind, state, shard.bytes),
        )


def _gone_cells(gone: GoneNode) -> tuple[str | None, ...]:
    state = "silent" if gone.follows else "gone"
    return gone.host, gone.process, gone.node, None, None, None, None, None, state, None


def _snapshot_cells(note: SnapshotNote) -> tuple[Any, ...]:
    return note.shard, note.seq, moment(note.made_at), note.bytes, note.stored, note.id
