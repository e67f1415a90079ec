"""A quiz plugin that keeps its configuration, a cache, a session and scores.

It works on a SQLite file of its own, or against a service that `holdfast up` started in another terminal:

    python examples/quiz_plugin.py
    HOLDFAST_URL=nats://127.0.0.1:4222 python examples/quiz_plugin.py

The first run prints

    config: 3 questions, 20 seconds each
    question 1: computed
    question 2: computed
    question 1: from the cache
    session of ada: 1 answered, 1800 seconds left
    score of ada: 10

and the second, since everything is still there,

    config: 3 questions, 20 seconds each
    question 1: from the cache
    question 2: from the cache
    question 1: from the cache
    session of ada: 2 answered, 1800 seconds left
    score of ada: 20
"""

import asyncio
import os
from typing import Any

import holdfast

DEFAULTS = {"questions": 3, "seconds": 20}
HOUR, SESSION = 3600, 1800


async def config(kv: holdfast.KV) -> dict[str, Any]:
    """The stored configuration. A setting that is not stored has its default, also one of a newer version."""
    entry = await kv.get("config")
    return DEFAULTS | (entry.value if entry else {})


async def question(kv: holdfast.KV, number: int) -> str:
    """A question, computed at most once an hour; says where this one came from."""
    cached = await kv.get(f"cache:question:{number}")
    if cached is not None:
        return "from the cache"
    text = f"What is {number} times {number}?"  # stands for a slow call
    await kv.set(f"cache:question:{number}", text, ttl=HOUR, semantics={"purpose": "cache"})
    return "computed"


async def answered(kv: holdfast.KV, user: str) -> dict[str, Any]:
    """The session of a user with one more answer, and with its full lifetime again."""
    key = f"session:{user}"
    entry = await kv.update(
        key, lambda session: {"answered": session["answered"] + 1}, default={"answered": 0}, ttl=SESSION
    )
    await kv.set_ttl(key, SESSION)
    value: dict[str, Any] = entry.value
    return value


async def main() -> None:
    """Play one round."""
    async with holdfast.open(os.environ.get("HOLDFAST_URL", "quiz_plugin.db")) as store:
        kv = store.kv("quiz-plugin")
        settings = await config(kv)
        print(f"config: {settings['questions']} questions, {settings['seconds']} seconds each")
        for number in (1, 2, 1):
            print(f"question {number}: {await question(kv, number)}")
        session = await answered(kv, "ada")
        left = await kv.get_ttl("session:ada")
        print(f"session of ada: {session['answered']} answered, {left} seconds left")
        score = await kv.incr("score:ada", 10)
        print(f"score of ada: {score.value}")


if __name__ == "__main__":
    asyncio.run(main())
