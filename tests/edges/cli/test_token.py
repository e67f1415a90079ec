"""`holdfast token`: tokens are made, listed and revoked, wherever the store is; a secret is shown once."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from tests.edges.nats.ground import serving

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer
    from tests.edges.cli.conftest import Cli


def test_a_token_from_making_to_revoking(cli: Cli) -> None:
    """The token is the only line on stdout; the list has all but the secret; a revoked one is gone."""
    made = cli("token", "create", "--plugin", "trivia", "--verbs", "get,watch", "--expires", "30d")
    assert re.fullmatch(r"hf_[0-9a-f]{16}_[\w-]{43}\n", made.out)
    assert "is for trivia, allows changes,get and expires" in made.err
    name = made.out.split("_")[1]
    listed = cli.did("token", "list").out
    assert listed.startswith(f"{name}\ttrivia\tchanges,get\t")
    assert made.out.strip() not in listed
    assert cli.did("token", "revoke", name, "--yes").out == f"{name} revoked\n"
    assert cli.did("token", "revoke", name, "--yes", "--json").jsons == [{"id": name, "revoked": False}]
    assert cli("token", "list").err == "holdfast: there are no tokens\n"


def test_tokens_as_documents(cli: Cli) -> None:
    """With --json a token and the list are documents, one on each line."""
    [made] = cli("token", "create", "--operator", "--json").jsons
    assert (made["token"].startswith("hf_"), made["about"]["operator"]) == (True, True)
    assert cli.did("token", "list", "--json").jsons == [made["about"]]


def test_a_wrong_token_is_refused(cli: Cli) -> None:
    """A verb that does not exist is named, and nothing is made."""
    assert "there is no verb 'gte'" in cli("token", "create", "--plugin", "a", "--verbs", "get,gte").err
    assert "which tokens?" in cli("token", "revoke", "--yes").err
    assert cli("token", "list").out == ""


async def test_tokens_of_a_service(cli: Cli, nats_server: NatsServer) -> None:
    """Through a service the same commands work, for operators."""
    async with serving(nats_server.url):
        where = ("--url", nats_server.url)
        made = await asyncio.to_thread(cli, "token", "create", "--plugin", "trivia", *where)
        name = made.out.split("_")[1]
        listed = await asyncio.to_thread(cli.did, "token", "list", *where)
        assert listed.out.startswith(f"{name}\ttrivia\tall verbs\t")
        revoked = await asyncio.to_thread(cli.did, "token", "revoke", name, "--yes", *where)
        assert revoked.out == f"{name} revoked\n"
