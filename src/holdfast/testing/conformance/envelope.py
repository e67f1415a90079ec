"""The envelope of an entry: writer, request, spec_ref and semantics.

Law: these tests say which envelopes are valid and that each is returned. The effects of semantics are tested
elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import moment
from holdfast.errors import ValidationError
from holdfast.model import KEEP, Semantics
from holdfast.testing.conformance.calls import writing
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import present, refusal

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV

NO_IDENTITY: Final[tuple[Any, ...]] = ("", "x" * 201, "a\nb", "\x00", "a\x7f", "\x85", "\ud800", 5, b"x")
NO_SPEC_REF: Final[tuple[Any, ...]] = ("x" * 501, "a\x00", "\ud800", 5, b"x")
ILLEGAL_SEMANTICS: Final[tuple[tuple[Any, str], ...]] = (
    ("config", "semantics"),
    (5, "semantics"),
    (["purpose"], "semantics"),
    ({"purpose": ""}, "semantics.purpose"),
    ({"purpose": "Config"}, "semantics.purpose"),
    ({"purpose": "1st"}, "semantics.purpose"),
    ({"purpose": "a-b"}, "semantics.purpose"),
    ({"purpose": "a" * 33}, "semantics.purpose"),
    ({"purpose": "a\n"}, "semantics.purpose"),
    ({"purpose": 5}, "semantics.purpose"),
    ({"producer": ""}, "semantics.producer"),
    ({"producer": "x" * 201}, "semantics.producer"),
    ({"producer": "a\tb"}, "semantics.producer"),
    ({"producer": 5}, "semantics.producer"),
    ({"consumer_hints": "hint"}, "semantics.consumer_hints"),
    ({"consumer_hints": ["x"] * 17}, "semantics.consumer_hints"),
    ({"consumer_hints": ["x" * 101]}, "semantics.consumer_hints"),
    ({"consumer_hints": [5]}, "semantics.consumer_hints"),
    ({"ttl_seconds": 0}, "semantics.ttl_seconds"),
    ({"ttl_seconds": -1}, "semantics.ttl_seconds"),
    ({"ttl_seconds": 1.5}, "semantics.ttl_seconds"),
    ({"ttl_seconds": True}, "semantics.ttl_seconds"),
    ({"ttl_seconds": "60"}, "semantics.ttl_seconds"),
    ({"ttl_seconds": 2**31}, "semantics.ttl_seconds"),
)


class EnvelopeRules(Fixtures):
    """The rules of the envelope."""

    async def test_writer_request_and_document_are_shown(self, kv: KV) -> None:
        """Every verb that writes takes a writer, a request id and a spec_ref, and the entry shows them."""
        given = {"writer": "agent:directive", "request_id": "r" * 200, "spec_ref": "s" * 500}
        entry = await kv.set("k", 1, writer="agent:directive", request_id="r" * 200, spec_ref="s" * 500)
        assert (entry.last_writer, entry.request_id, entry.spec_ref) == (
            given["writer"],
            given["request_id"],
            given["spec_ref"],
        )
        assert await kv.get("k") == entry
        [change] = await kv.history("k")
        assert (change.last_writer, change.request_id) == (given["writer"], given["request_id"])

    async def test_illegal_identities(self, kv: KV) -> None:
        """A writer and a request id are 1 to 200 characters without control characters, in every verb."""
        for verb, call in writing(kv, "k").items():
            for wrong in NO_IDENTITY:
                with refusal(ValidationError, field="last_writer", about=(verb, wrong)):
                    await call(writer=wrong)
                with refusal(ValidationError, field="request_id", about=(verb, wrong)):
                    await call(request_id=wrong)

    async def test_illegal_documents(self, kv: KV) -> None:
        """A spec_ref is at most 500 characters of valid text, in every verb."""
        for verb, call in writing(kv, "k").items():
            for wrong in NO_SPEC_REF:
                with refusal(ValidationError, field="spec_ref", about=(verb, wrong)):
                    await call(spec_ref=wrong)

    async def test_the_longest_legal_texts(self, kv: KV) -> None:
        """Limits count characters, not bytes."""
        entry = await kv.set(
            "🎉" * 255,
            1,
            writer="🎉" * 200,
            request_id="ä" * 200,
            spec_ref="🎉" * 500,
            semantics={"purpose": "a" * 32, "producer": "é" * 200, "consumer_hints": ["🎉" * 100] * 16},
        )
        assert await kv.get("🎉" * 255) == entry
        assert entry.last_writer == "🎉" * 200

    async def test_semantics_are_kept(self, kv: KV, clock: ManualClock) -> None:
        """Semantics may be given as an object or as `Semantics`, and are returned as `Semantics`."""
        given = {"purpose": "checkpoint", "producer": "p:d", "consumer_hints": ["a", "b"], "ttl_seconds": 60}
        meant = Semantics(purpose="checkpoint", producer="p:d", consumer_hints=("a", "b"), ttl_seconds=60)
        for semantics in (given, meant):
            entry = await kv.set("k", 1, semantics=semantics)
            assert entry.semantics == meant
            assert entry.expires_at == moment(clock.now() + 60_000)
            assert await kv.get("k") == entry
        assert [change.purpose for change in await kv.history("k")] == ["checkpoint", "checkpoint"]

    async def test_no_semantics(self, kv: KV) -> None:
        """Empty semantics count as none; unknown fields are ignored, and null fields are absent."""
        nothings: tuple[Any, ...] = (None, {}, Semantics(), {"purpose": None}, {"unknown": 5})
        for nothing in nothings:
            assert (await kv.set("k", 1, semantics=nothing)).semantics is None
        entry = await kv.set("k", 1, semantics={"purpose": "flag", "unknown": 5, "producer": None})
        assert entry.semantics == Semantics(purpose="flag")

    async def test_illegal_semantics(self, kv: KV) -> None:
        """Every verb that takes semantics refuses invalid ones, with the field's full name."""
        for semantics, field in ILLEGAL_SEMANTICS:
            with refusal(ValidationError, field=field, about=semantics):
                await kv.set("k", 1, semantics=semantics)
            with refusal(ValidationError, field=field, about=semantics):
                await kv.batch(writes=[{"key": "k", "value": 1, "semantics": semantics}])
            [error] = await kv.set_many([{"key": "k", "value": 1, "semantics": semantics}])
            assert isinstance(error, ValidationError)
            assert error.field == field
        assert await kv.get("k") is None

    async def test_the_ttl_of_the_semantics(self, kv: KV, clock: ManualClock) -> None:
        """ttl_seconds sets the deadline as ttl does; giving both with different values is refused."""
        assert present(await kv.set("k", 1, ttl=60, semantics={"ttl_seconds": 60})).expires_at == moment(
            clock.now() + 60_000
        )
        ttls: tuple[Any, ...] = (61, 1, KEEP)
        for ttl in ttls:
            with refusal(ValidationError, field="ttl", says="60", about=ttl):
                await kv.set("k", 1, ttl=ttl, semantics={"ttl_seconds": 60})
        clock.advance(60)
        assert await kv.get("k") is None
