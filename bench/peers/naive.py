"""The service that one writes first: a SQLAlchemy session for each request, a callback for each verb.

It is what a bot's database service looks like when nobody has measured it: an ORM class, an asynchronous
engine on SQLite, and a subscription for every verb whose callback is awaited message by message.

Nothing in it is slowed down or sped up. `python -m bench.peers.naive URL FILE` runs it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import nats
from sqlalchemy import select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

DURABILITY = "SQLite as aiosqlite opens it: rollback journal, synchronous=FULL, a commit for each set"


class Base(DeclarativeBase):
    """The declarative root."""


class Stored(Base):
    """A plugin's value."""

    __tablename__ = "naive_values"

    plugin: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    content: Mapped[str]
    gone_at: Mapped[datetime | None]
    changed_at: Mapped[datetime]


class Service:
    """Answers `set` and `get`."""

    def __init__(self, client: Client, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._client = client
        self._sessions = sessions

    async def start(self) -> None:
        """Subscribe to each verb."""
        await self._client.subscribe("db.kv.*.set", cb=self.on_set)
        await self._client.subscribe("db.kv.*.get", cb=self.on_get)
        await self._client.flush()

    async def on_set(self, message: Msg) -> None:
        """Put a value."""
        plugin, asked = message.subject.split(".")[2], json.loads(message.data)
        now = datetime.now(UTC)
        gone_at = now + timedelta(seconds=asked["ttl"]) if asked.get("ttl") else None
        changed = {"content": json.dumps(asked["value"]), "gone_at": gone_at, "changed_at": now}
        async with self._sessions() as session:
            statement = insert(Stored).values(plugin=plugin, key=asked["key"], **changed)
            await session.execute(
                statement.on_conflict_do_update(index_elements=["plugin", "key"], set_=changed)
            )
            await session.commit()
        await self._reply(message, {"success": True})

    async def on_get(self, message: Msg) -> None:
        """Look a value up."""
        plugin, asked = message.subject.split(".")[2], json.loads(message.data)
        async with self._sessions() as session:
            statement = select(Stored).where(Stored.plugin == plugin, Stored.key == asked["key"])
            row = (await session.execute(statement)).scalar_one_or_none()
        if row is None or (row.gone_at is not None and row.gone_at.replace(tzinfo=UTC) <= datetime.now(UTC)):
            await self._reply(message, {"success": True, "exists": False})
        else:
            await self._reply(message, {"success": True, "exists": True, "value": json.loads(row.content)})

    async def _reply(self, message: Msg, answer: dict[str, Any]) -> None:
        await self._client.publish(message.reply, json.dumps(answer).encode())


async def main(url: str, path: str) -> None:
    """Serve until ended."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    client = await nats.connect(url)
    await Service(client, async_sessionmaker(engine, expire_on_commit=False)).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
