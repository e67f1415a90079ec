"""Histories of a register that is right by construction: every effect is at a known instant.

The register here is a plain variable that shares no code with the checker or its model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.linear.history import Operation

if TYPE_CHECKING:
    from random import Random

NAMESPACE = "kv/simulated"


class _Call:
    """A call under way: what was asked, and the reply once it has taken effect."""

    def __init__(self, client: int, call: int, asked: dict[str, Any], fate: str) -> None:
        self.client = client
        self.call = call
        self.asked = asked
        self.fate = fate
        """`answered`, `refused` (nothing is done), or `given up` (it is done later, or never)."""
        self.told: dict[str, Any] | None = None


class Simulation:
    """Clients of a few keys whose calls, effects and ends come in an order that chance decides."""

    def __init__(self, random: Random, *, clients: int = 4, keys: int = 2) -> None:
        self._random = random
        self._clients = clients
        self._keys = [f"k{number}" for number in range(keys)]
        self._entries: dict[str, tuple[int, int]] = {}
        self._revision = 0
        self._now = 0
        self._values = 0
        self._idle = list(range(clients))
        self._calls: list[_Call] = []
        self._adrift: list[_Call] = []
        self._history: list[Operation] = []

    def run(self, operations: int) -> list[Operation]:
        """A history of so many operations."""
        begun = 0
        while begun < operations or self._calls:
            self._now += self._random.randint(0, 3)
            if self._idle and begun < operations and self._random.random() < 0.5:
                self._begin()
                begun += 1
            elif self._adrift and self._random.random() < 0.2:
                self._take_effect(self._adrift.pop(self._random.randrange(len(self._adrift))))
            elif self._calls:
                self._proceed(self._random.choice(self._calls))
        return self._history

    def _begin(self) -> None:
        client = self._idle.pop(self._random.randrange(len(self._idle)))
        fate = self._random.choices(["answered", "refused", "given up"], [90, 5, 5])[0]
        self._calls.append(_Call(client, self._now, self._request(), fate))

    def _request(self) -> dict[str, Any]:
        verb = self._random.choice(["get", "get", "set", "set", "incr", "delete"])
        asked: dict[str, Any] = {"key": self._random.choice(self._keys), "verb": verb}
        if verb == "set":
            self._values += 1000
            asked["argument"] = self._values
        elif verb == "incr":
            asked["argument"] = self._random.randint(1, 3)
        if verb != "get" and self._random.random() < 0.5:
            _, version = self._entries.get(asked["key"], (None, 0))
            asked["expected"] = self._random.choice([version, version, 0, max(version - 1, 0)])
        return asked

    def _proceed(self, call: _Call) -> None:
        """Let a call take effect, or end if it has or never will."""
        if call.fate == "answered" and call.told is None:
            self._take_effect(call)
            return
        self._calls.remove(call)
        self._idle.append(call.client)
        told: dict[str, Any] = {"outcome": "unknown"}
        if call.fate == "answered":
            told = call.told or {}
        elif call.fate == "refused":
            told = {"outcome": "refused", "code": "TIMEOUT"}
        else:
            self._adrift.append(call)
            told["deadline"] = self._now
        self._history.append(
            Operation(
                client=call.client,
                call=call.call,
                end=self._now,
                namespace=NAMESPACE,
                **call.asked,
                **told,
            )
        )

    def _take_effect(self, call: _Call) -> None:
        key, verb, expected = call.asked["key"], call.asked["verb"], call.asked.get("expected")
        value, version = self._entries.get(key, (None, None))
        if expected is not None and expected != (version or 0):
            call.told = {"outcome": "conflict", "found": value, "version": version}
        elif verb == "get":
            call.told = {"outcome": "ok", "found": value, "version": version}
        elif verb == "delete":
            call.told = {"outcome": "ok", "found": value is not None}
            if value is not None:
                self._revision += 1
                del self._entries[key]
        else:
            self._revision += 1
            value = call.asked["argument"] + ((value or 0) if verb == "incr" else 0)
            self._entries[key] = (value, self._revision)
            call.told = {"outcome": "ok", "found": value, "version": self._revision}
