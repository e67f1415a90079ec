"""The log of a cluster is for its nodes alone: nobody else on the bus can remove, change, write or read it.

Real servers that `holdfast up --cluster` starts. What counts is what the log and its readers have, not
which errors were reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import stat
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

import holdfast
from holdfast.edges.nats.cluster_server import NODE_ACCOUNT, cluster_config, keep_log, monitor_port
from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from holdfast.edges.settings.read import read_config
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.operators import ClusterOperator
from holdfast.errors import PermissionDenied, ValidationError
from tests.edges.nats.ground import until
from tests.edges.running import Up, ask, holdfast_up, plain_client
from tests.jetstream import servers_running
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from holdfast.edges.nats.server_config import Credentials, Mode

SECRET: Final = "0123456789abcdef"
LOG: Final = "hf.shop.log.0"
OWN: Final = ("hf.", "$JS", "_INBOX.HOLDFAST_NODE")
"""How the subjects begin that no other user may see."""
VALUE: Final = b"treasure"
FORGED: Final = b"forged"
CALLS: Final = {
    "STREAM.DELETE.HF_shop": {},
    "STREAM.PURGE.HF_shop": {},
    "STREAM.MSG.DELETE.HF_shop": {"seq": 1},
    "STREAM.MSG.GET.HF_shop": {"seq": 1},
    "STREAM.INFO.HF_shop": {},
    "STREAM.UPDATE.HF_shop": {"name": "HF_shop", "subjects": ["x"], "deny_delete": False},
    "STREAM.LEADER.STEPDOWN.HF_shop": {},
    "STREAM.SNAPSHOT.HF_shop": {"deliver_subject": "stolen"},
    "STREAM.CREATE.MINE": {"name": "MINE", "subjects": ["mine"], "sources": [{"name": "HF_shop"}]},
    "CONSUMER.CREATE.HF_shop": {
        "stream_name": "HF_shop",
        "config": {"deliver_subject": "stolen", "deliver_policy": "all", "ack_policy": "none"},
    },
    "DIRECT.GET.HF_shop": {"seq": 1},
    "META.LEADER.STEPDOWN": {},
}
"""Calls of JetStream's API that would remove, change or show the log."""


async def attack(client: Client, *, account: bool = False) -> list[str]:
    """Try to remove, change, write and read the log. Returns where something of it was heard.

    In an `account` of its own, a client hears what it sends itself to subjects of these names.
    """
    own = "db.kv.trivia.ready"
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        logged = any(name.startswith("Hf-") for name in message.headers or {})
        if logged or (
            message.subject.startswith((*OWN, "stolen")) and (not account or VALUE in message.data)
        ):
            heard.append(message.subject)

    for subject in (">", "hf.>", "*.*.*.*", "_INBOX.>", "_INBOX.HOLDFAST_NODE.>", "$JS.>", "stolen"):
        await client.subscribe(subject, cb=hear)
        await client.subscribe(subject, queue="q", cb=hear)
    inbox = client.new_inbox()
    replies: list[bytes] = []

    async def reply(message: Msg) -> None:
        nobody = message.headers is not None and message.headers.get("Status") == "503"
        refused = account and b'"error"' in message.data  # its own account has no JetStream
        if not nobody and not refused and message.data != FORGED:
            replies.append(message.data)

    await client.subscribe(f"{inbox}.*", cb=reply)
    for number, (call, body) in enumerate(CALLS.items()):
        await client.publish(f"$JS.API.{call}", json.dumps(body).encode(), reply=f"{inbox}.{number}")
    for subject in (LOG, "hf.shop.want.0", "hf.shop.index.0", "hf.shop.node.all", "hf.shop.machine.all"):
        await client.publish(subject, FORGED, reply=f"{inbox}.forged")
    # What others answer, the server too, may go to the reply subject of the request.
    for subject in (own, "$SYS.REQ.USER.INFO", "$SRV.PING", "$JS.API.INFO"):
        await client.publish(subject, b"{}", reply=LOG)
    for subject in (own, "anything"):
        await client.publish(subject, b"{}", headers={"Nats-Trace-Dest": LOG})
    with contextlib.suppress(Exception):
        await client.flush(timeout=60)
    assert not replies, replies
    return heard


def monitor_of(up: Up) -> int:
    """The monitoring port of a machine's server."""
    return monitor_port(read_config(environment={}, nats_port=up.nats_port))


@contextlib.asynccontextmanager
async def operator_of(up: Up) -> AsyncIterator[ClusterOperator]:
    """An operator with the credentials of the node."""
    login = up.home / "holdfast" / "nats" / "node.login"
    url = f"cluster://127.0.0.1:{up.nats_port}/shop?login={login}&monitor={monitor_of(up)}"
    async with ClusterOperator(cluster_address(url)) as operator:
        yield operator


async def test_nobody_but_the_node_reaches_the_log(tmp_path: Path) -> None:
    """Whoever connects without credentials uses the service as before, and can't do anything to the log.

    The credentials of the node are in a file that only its owner can read.
    """
    async with holdfast_up(tmp_path, "--cluster", "shop") as up, plain_client(up.url) as client:
        written = await ask(client, "db.kv.trivia.set", key="k", value="treasure")
        assert written["success"], written
        async with operator_of(up) as operator:
            before = (await operator.status()).log
            heard = await attack(client)
            assert (await ask(client, "db.kv.trivia.set", key="k", value="more treasure"))["version"] == 2
            after = (await operator.status()).log
            assert after.last - before.last <= 2, "nothing was stored but the write, and a lease"
            assert (after.epoch, after.first) == (before.epoch, before.first)
            assert (await operator.verify(seconds=60)).equal
        events: list[bytes] = []
        await client.subscribe("db.event.kv.trivia.>", cb=partial(_note, events))
        await client.publish("bot.says", b"anything else on the bus is free")
        await client.flush()
        assert (await ask(client, "db.kv.trivia.set", key="k", value=3))["version"] == 3
        await until(lambda: bool(events))
        assert not heard
        login = tmp_path / "holdfast" / "nats" / "node.login"
        assert stat.S_IMODE(login.stat().st_mode) == 0o600
        secret = login.read_text().strip().partition(":")[2]
        assert secret not in "\n".join([*up.said, up.complaints])
        for line in up.said:
            if "cluster status" in line:
                assert f"login={login}" in line
    async with holdfast_up(tmp_path, "--cluster", "shop") as up, plain_client(up.url) as client:
        assert (await ask(client, "db.kv.trivia.get", key="k"))["value"] == 3
        assert login.read_text().strip().partition(":")[2] == secret


async def _note(events: list[bytes], message: Msg) -> None:
    events.append(message.data)


async def test_opening_a_cluster_without_credentials_names_them(tmp_path: Path) -> None:
    """A program that opens the cluster without credentials learns which it needs, and waits for nothing."""
    async with holdfast_up(tmp_path, "--cluster", "shop") as up:
        options = f"data={tmp_path / 'other'}&monitor={monitor_of(up)}"
        url = f"cluster://127.0.0.1:{up.nats_port}/shop?{options}"
        with pytest.raises(PermissionDenied, match=r"nats/node\.login"):
            async with holdfast.open(url):
                pass
        with pytest.raises(PermissionDenied, match=r"nats/node\.login"):
            async with ClusterOperator(cluster_address(url)) as operator:
                await operator.status()
        login = tmp_path / "holdfast" / "nats" / "node.login"
        async with holdfast.open(f"{url}&login={login}") as store:
            assert (await store.kv("trivia").set("k", 1)).version == 1
        with pytest.raises(ValidationError, match="names no file with user:password"):
            async with holdfast.open(f"{url}&login={tmp_path / 'none'}"):
                pass


@contextlib.asynccontextmanager
async def isolated(
    home: Path, mode: Mode, credentials: dict[str, Credentials], *more: object, **variables: str
) -> AsyncIterator[Up]:
    """A machine of a cluster whose plugins are told apart."""
    config, seed = home / "bus.conf", home / "service.nk"
    config.write_text(Permissions(["trivia", "quotes"], mode=mode).configuration(credentials))
    seed.write_text(credentials[SERVICE].secret)
    flags = ("--cluster", "shop", "--nats-config", config, "--nats-nkey", seed, *more)
    async with holdfast_up(home, *flags, HOLDFAST_REPLY_MODE=mode, **variables) as up:
        yield up


def made(mode: Mode) -> dict[str, Credentials]:
    """Credentials for everybody in a configuration."""
    return {
        user: new_credentials(user, "nkeys") for user in Permissions(["trivia", "quotes"], mode=mode).users
    }


@pytest.mark.parametrize("mode", ["accounts", "permissions"])
async def test_isolation_of_plugins_can_be_switched_on_and_off(tmp_path: Path, mode: Mode) -> None:
    """Isolation can be switched on and off on a machine alone, and no plugin reaches the log or another one.

    What was written stays. Credentials that were renewed are used without a restart.
    """
    async with holdfast_up(tmp_path, "--cluster", "shop") as up, plain_client(up.url) as client:
        assert (await ask(client, "db.kv.trivia.set", key="k", value="open treasure"))["success"]
    credentials = made(mode)
    async with isolated(tmp_path, mode, credentials) as up:
        async with plain_client(up.url, **credentials["trivia"].options()) as client:
            assert (await ask(client, "db.kv.trivia.get", key="k"))["value"] == "open treasure"
            assert not await attack(client, account=mode == "accounts")
            await client.publish("db.kv.quotes.set", b'{"key": "k", "value": 1}')
            assert (await ask(client, "db.kv.trivia.set", key="k", value="treasure apart"))["version"] == 2
        async with plain_client(up.url, **credentials["quotes"].options()) as client:
            assert (await ask(client, "db.kv.quotes.get", key="k"))["exists"] is False
        async with operator_of(up) as operator:
            assert (await operator.verify(seconds=60)).equal
        renewed = {**credentials, "trivia": new_credentials("trivia", "nkeys")}
        text = Permissions(["trivia", "quotes"], mode=mode).configuration(renewed)
        (tmp_path / "bus.conf").write_text(text)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(Exception):
                    async with plain_client(up.url, **renewed["trivia"].options()) as client:
                        assert (await ask(client, "db.kv.trivia.get", key="k"))["value"] == "treasure apart"
                        break
                await asyncio.sleep(0.1)
    async with holdfast_up(tmp_path, "--cluster", "shop") as up, plain_client(up.url) as client:
        assert (await ask(client, "db.kv.trivia.get", key="k"))["value"] == "treasure apart"


async def test_an_open_log_of_an_older_version_is_kept_and_closed(tmp_path: Path) -> None:
    """A machine whose log was made when everybody had access to it goes on with it, and closes it."""
    async with servers_running(1) as servers:
        url = servers.url("shop", tmp_path / "holdfast" / "replica")
        async with holdfast.open(url, reap=False) as store:
            await store.kv("trivia").set("k", "old treasure")
        store_dir = servers.servers[0].log.parents[2] / "js0"
        await servers.servers[0].stop()
        shutil.copytree(store_dir, tmp_path / "holdfast" / "nats" / "jetstream")
    async with holdfast_up(tmp_path, "--cluster", "shop") as up, plain_client(up.url) as client:
        assert (await ask(client, "db.kv.trivia.get", key="k"))["value"] == "old treasure"
        assert not await attack(client)
        assert (await ask(client, "db.kv.trivia.set", key="k", value=2))["version"] == 2
        async with operator_of(up) as operator:
            assert (await operator.verify(seconds=60)).equal


def test_several_machines_do_not_move_their_log_alone(tmp_path: Path) -> None:
    """A machine that keeps its log with others does not move it to tell plugins apart; it says how to."""
    store = tmp_path / "nats" / "jetstream" / "jetstream"
    (store / "$G" / "streams" / "HF_shop").mkdir(parents=True)
    (store / "$SYS" / "_js_" / "_meta_").mkdir(parents=True)
    file = tmp_path / "bus.conf"
    file.write_text("accounts { }\n")
    given: dict[str, Any] = {"cluster": "shop", "data_dir": str(tmp_path), "environment": {}}
    keep_log(read_config(**given), tmp_path / "nats")
    with pytest.raises(ValidationError, match="holdfast backup") as refusal:
        keep_log(read_config(**given, nats_config=str(file)), tmp_path / "nats")
    assert refusal.value.field == "nats_config"
    assert (store / "$G" / "streams" / "HF_shop").exists()
    shutil.rmtree(store / "$SYS")
    (store / "$G" / "streams" / "HF_shop_SNAPSHOTS").mkdir()
    for _ in range(2):
        keep_log(read_config(**given, nats_config=str(file)), tmp_path / "nats")
        assert {path.name for path in (store / NODE_ACCOUNT / "streams").iterdir()} == {
            "HF_shop",
            "HF_shop_SNAPSHOTS",
        }
    keep_log(read_config(**given), tmp_path / "nats")
    assert (store / "$G" / "streams" / "HF_shop_SNAPSHOTS").exists()


@pytest.mark.parametrize("text", ["port: 4222\n", "accounts { }\naccounts { }\n"])
def test_a_configuration_without_accounts_admits_no_node(tmp_path: Path, text: str) -> None:
    """A file into which the node can't be put is refused with the setting that names it."""
    file = tmp_path / "bus.conf"
    file.write_text(text)
    config = read_config(environment={}, cluster="shop", data_dir=str(tmp_path), nats_config=str(file))
    with pytest.raises(ValidationError, match="holdfast nats config") as refusal:
        cluster_config(config, tmp_path / "nats", file)
    assert refusal.value.field == "nats_config"


@pytest.mark.parametrize("mode", [None, "accounts"])
async def test_three_machines_keep_their_log_to_themselves(tmp_path: Path, mode: Mode | None) -> None:
    """With peers, each machine has credentials of its own, and no client of any of them reaches the log.

    A machine whose plugins were told apart when it was alone brings its log.
    """
    routes = [free_port() for _ in range(3)]
    credentials = made(mode or "accounts")
    login = credentials["trivia"].options() if mode else {}
    if mode:
        (tmp_path / "0").mkdir()
        async with isolated(tmp_path / "0", mode, credentials) as up, plain_client(up.url, **login) as client:
            assert (await ask(client, "db.kv.trivia.set", key="alone", value=1))["version"] == 1
    async with contextlib.AsyncExitStack() as stack:
        starting = []
        for number, route in enumerate(routes):
            others = ",".join(f"127.0.0.1:{port}" for port in routes if port != route)
            flags = ("--peers", others, "--cluster-host", "127.0.0.1", "--cluster-port", route)
            home = tmp_path / str(number)
            home.mkdir(exist_ok=True)
            running = (
                isolated(home, mode, credentials, *flags, HOLDFAST_CLUSTER_SECRET=SECRET)
                if mode
                else holdfast_up(home, "--cluster", "shop", *flags, HOLDFAST_CLUSTER_SECRET=SECRET)
            )
            starting.append(stack.enter_async_context(running))
        machines = await asyncio.gather(*starting)
        logins = set()
        for number, up in enumerate(machines):
            async with plain_client(up.url, **login) as client:
                wrote = await ask(client, "db.kv.trivia.set", key="k", value=f"treasure {number}")
                assert wrote["version"] == number + (2 if mode else 1), wrote
                assert not await attack(client, account=mode is not None)
                assert (await ask(client, "db.kv.trivia.get", key="k"))["value"] == f"treasure {number}"
            logins.add((up.home / "holdfast" / "nats" / "node.login").read_text())
        assert len(logins) == 3
        async with operator_of(machines[0]) as operator:
            status = await operator.status()
            assert (len(status.nodes), len(status.log.followers), status.troubles) == (3, 2, [])
            assert (await operator.verify(seconds=60)).equal
