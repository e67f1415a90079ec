"""Answers to the NATS services framework, version 1: ping, info and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

import holdfast
from holdfast import seams
from holdfast.edges.intake.requests import Endpoint

NAME: Final = "holdfast"
_TYPES: Final = "io.nats.micro.v1"
_KINDS: Final = ("PING", "INFO", "STATS")


class ServiceDiscovery:
    """This instance as it appears to the services framework.

    Args:
        endpoints: The counters of its subjects.
        id: The name of this instance.
    """

    def __init__(self, endpoints: Sequence[Endpoint], id: str) -> None:
        self.endpoints = endpoints
        self.id = id
        self._identity = {
            "name": NAME,
            "id": self.id,
            "version": holdfast.__version__,
            "metadata": {},
        }
        self._started = datetime.fromtimestamp(seams.wall(), UTC)

    def subjects(self) -> Iterator[str]:
        """Yield every subject that this instance must answer."""
        for kind in _KINDS:
            yield f"$SRV.{kind}"
            yield f"$SRV.{kind}.{NAME}"
            yield f"$SRV.{kind}.{NAME}.{self.id}"

    def answer(self, subject: str) -> bytes:
        """Return the answer to a request on one of these subjects."""
        kind = subject.split(".")[1]
        return msgspec.json.encode(
            {"type": f"{_TYPES}.{kind.lower()}_response", **self._identity, **self._more(kind)}
        )

    def _more(self, kind: str) -> dict[str, Any]:
        if kind == "INFO":
            described = [
                {"name": one.name, "subject": one.subject, "queue_group": one.queue_group, "metadata": {}}
                for one in self.endpoints
            ]
            return {
                "description": "Key-value store with versions, expiry and watches",
                "endpoints": described,
            }
        if kind == "STATS":
            for one in self.endpoints:
                one.average_processing_time = one.processing_time // max(1, one.num_requests)
            return {"started": self._started, "endpoints": self.endpoints}
        return {}
