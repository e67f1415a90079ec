"""An agent as a process that can be stopped at any moment: it takes a lock, writes, renews and releases.

    python -m tests.edges.mcp.agent_process NAME SEED stdio ARGUMENT...
    python -m tests.edges.mcp.agent_process NAME SEED http ADDRESS

It works until the flag `stop` is set, and then prints how often it was refused. Each holding has a name,
`NAME:NUMBER`, which is the writer of everything that belongs to it, so that the journal tells who did what.

Its server is `holdfast ARGUMENT...`, forked from this process and of its group, or a service.

It speaks with the standard library alone. It is as careful as `claim_task` tells an agent to be, and no
more: it never looks at a clock, and believes that it holds the lock until it is told.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import sys
import time
from typing import Any, Final
from urllib.parse import urlsplit

from tests.forking import fork

LOCK: Final = "shared"
LEDGER: Final = "ledger"
TTL: Final = 1
STOP: Final = "stop"
HELLO: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "agent", "version": "1"},
}


class Pipe:
    """A server that this process forks and speaks to by lines."""

    def __init__(self, arguments: list[str]) -> None:
        (given, stdin), (stdout, printed) = os.pipe(), os.pipe()
        self._server = fork("holdfast", arguments, env=os.environ, streams=(given, printed, 2), near=True)
        for end in (given, printed):
            os.close(end)
        self._stdin, self._stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.send(message)
        for line in self._stdout:
            found: dict[str, Any] = json.loads(line)
            if found.get("id") == message["id"]:
                return found
        raise SystemExit("the server has ended")

    def close(self) -> None:
        """End the server."""
        self._stdin.close()
        self._server.wait()
        self._stdout.close()


class Address:
    """A service over streamable HTTP, within a session."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = parts.path
        self._connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
        self._headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

    def send(self, message: dict[str, Any]) -> list[str]:
        """Send a message; the lines of the answer."""
        self._connection.request("POST", self._path, json.dumps(message), self._headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            raise SystemExit(f"the service answered {answer.status}: {text}")
        if session := answer.getheader("mcp-session-id"):
            self._headers["Mcp-Session-Id"] = session
            self._headers["Mcp-Protocol-Version"] = HELLO["protocolVersion"]  # type: ignore[assignment]
        return text.splitlines()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request; its answer."""
        for line in self.send(message):
            found = json.loads(line.removeprefix("data:").strip() or "{}") if line[:5] == "data:" else {}
            if found.get("id") == message["id"]:
                return dict(found)
        raise SystemExit("the service has not answered")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Agent:
    """The agent's loop."""

    def __init__(self, server: Pipe | Address, name: str, chance: random.Random) -> None:
        self._server = server
        self._name = name
        self._chance = chance
        self._ids = itertools.count(1)
        self.holdings: list[tuple[str, int]] = []
        self.refused = 0

    def work(self) -> None:
        """Take part until the flag is set."""
        self._ask("initialize", HELLO)
        self._server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        for number in itertools.count(1):
            if self._call("flag_read", name=STOP)["set"]:
                return
            self._round(f"{self._name}:{number}")

    def _round(self, holding: str) -> None:
        held = self._call("lock_acquire", name=LOCK, ttl=TTL, last_writer=holding, request_id=holding)
        if not held.get("acquired"):
            time.sleep(self._chance.random() * 0.01)
            return
        self.holdings.append((holding, held["token"]))
        if not all(self._step(step, held["token"], holding) for step in range(5)):
            self.refused += 1

    def _step(self, step: int, token: int, holding: str) -> bool:
        """Do one step of a holding. Returns False once the lock is known to be lost."""
        if step == 2:
            renewed = self._call("lock_renew", name=LOCK, token=token, ttl=TTL, last_writer=holding)
            return bool(renewed["renewed"])
        if step == 4:
            return bool(self._call("lock_release", name=LOCK, token=token, last_writer=holding)["released"])
        fence = {"lock": LOCK, "token": token}
        return bool(self._call("put", key=LEDGER, value=token, last_writer=holding, fence=fence)["success"])

    def _call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool, again if its outcome is not known: every step may be repeated."""
        while True:
            found = self._ask("tools/call", {"name": tool, "arguments": arguments})
            content: dict[str, Any] = found["structuredContent"]
            if not found.get("isError"):
                return content
            if not (content.get("retryable") or content.get("error_code") == "OUTCOME_UNKNOWN"):
                raise SystemExit(f"{tool} was refused: {content}")

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        answer = self._server.ask(message)
        if "result" not in answer:
            raise SystemExit(f"{method} failed: {answer}")
        result: dict[str, Any] = answer["result"]
        return result


def main(name: str, seed: str, kind: str, *server: str) -> None:
    """Run an agent, and print what it was told."""
    os.setsid()
    reached = Pipe(list(server)) if kind == "stdio" else Address(server[0])
    agent = Agent(reached, name, random.Random(f"{seed} {name}"))
    agent.work()
    reached.close()
    print(json.dumps({"holdings": agent.holdings, "refused": agent.refused}))


if __name__ == "__main__":
    main(*sys.argv[1:])
