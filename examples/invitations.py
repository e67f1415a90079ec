"""Invitations that expire and can be used once: tables with a deadline, and writes that go together.

    python examples/invitations.py
    HOLDFAST_URL=nats://127.0.0.1:4222 python examples/invitations.py

The first run prints

    ada joins with tea-1: yes
    grace joins with tea-1: no, the invitation is used or expired
    grace joins with late-1: no, the invitation is used or expired
    grace joins with tea-2: yes
    members: ada, grace

and the second, where both are members already and no invitation is used up in vain,

    ada joins with tea-1: no, there is a member of that name
    grace joins with tea-1: no, there is a member of that name
    grace joins with late-1: no, the invitation is used or expired
    grace joins with tea-2: no, there is a member of that name
    members: ada, grace
"""

import asyncio
import contextlib
import os
import time

import holdfast

WEEK = 7 * 86_400


async def create(tables: holdfast.Tables) -> None:
    """Make both tables unless they are there. The attribute `expires` says when an invitation is gone."""
    with contextlib.suppress(holdfast.TableExists):
        await tables.create_table(
            "invitations", partition_key=("token", "string"), ttl_attribute="expires", stream="keys"
        )
    with contextlib.suppress(holdfast.TableExists):
        await tables.create_table("members", partition_key=("name", "string"))


async def invite(tables: holdfast.Tables, token: str) -> None:
    """Make an invitation for a week."""
    await tables.put_item("invitations", {"token": token, "expires": int(time.time()) + WEEK})


async def join(tables: holdfast.Tables, name: str, token: str) -> str:
    """Use up an invitation and make a member, both or neither."""
    there, not_there = {"token": {"exists": True}}, {"name": {"not_exists": True}}
    writes = [
        {"delete": {"table": "invitations", "partition_key": token, "condition": there}},
        {"put": {"table": "members", "item": {"name": name, "invited": token}, "condition": not_there}},
    ]
    try:
        await tables.transact_write(writes)
    except holdfast.ConditionFailed as refusal:
        [first, *_] = refusal.conflicts
        gone = first.position == 0
        return "no, the invitation is used or expired" if gone else "no, there is a member of that name"
    return "yes"


async def main() -> None:
    """Invite, join, and list the members."""
    async with holdfast.open(os.environ.get("HOLDFAST_URL", "invitations.db")) as store:
        tables = store.tables("invitations")
        await create(tables)
        await invite(tables, "tea-1")
        await invite(tables, "tea-2")
        await tables.put_item("invitations", {"token": "late-1", "expires": 1_000_000_000})  # in 2001
        for name, token in (("ada", "tea-1"), ("grace", "tea-1"), ("grace", "late-1"), ("grace", "tea-2")):
            print(f"{name} joins with {token}: {await join(tables, name, token)}")
        page = await tables.scan("members")
        print("members:", ", ".join(item.value["name"] for item in page.items))


if __name__ == "__main__":
    asyncio.run(main())
