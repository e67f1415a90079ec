"""The provider of OpenFeature, on every ground."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from openfeature import api
from openfeature.event import EventDetails, ProviderEvent
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason
from openfeature.provider import ProviderStatus

import holdfast
import holdfast.sync
from holdfast.handles.recipes.mirror import Mirror
from holdfast.integrations.openfeature import HoldfastProvider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from openfeature.client import OpenFeatureClient

    from holdfast.clock import ManualClock
    from holdfast.store import Store


@pytest.fixture
def client() -> Iterator[OpenFeatureClient]:
    """A client of OpenFeature; its providers and handlers are gone after the test."""
    yield api.get_client()
    api.shutdown()
    api.clear_providers()


async def test_flags_of_every_type_are_evaluated(store: Store, client: OpenFeatureClient) -> None:
    """A flag of each type is evaluated with its variant and metadata; the reason is STATIC."""
    kv = store.kv("shop")
    await kv.flag("Boolean-Flag", False).define(
        {"on": True, "off": False}, use="on", metadata={"team": "ui", "links": ["x"]}
    )
    await kv.flag("string", "").set("hi", variant="greeting")
    await kv.flag("integer", 0).set(10)
    await kv.flag("float", 0.0).set(0.5)
    await kv.flag("object", {"title": ""}).set({"title": "Check out"})
    async with HoldfastProvider(kv) as provider:
        api.set_provider_and_wait(provider)
        assert client.get_provider_status() is ProviderStatus.READY
        details = client.get_boolean_details("Boolean-Flag", False)
        assert (details.value, details.variant, details.reason) == (True, "on", Reason.STATIC)
        assert details.flag_metadata == {"team": "ui"}
        assert client.get_string_details("string", "").variant == "greeting"
        assert client.get_integer_value("integer", 0) == 10
        assert client.get_float_value("float", 0.0) == 0.5
        assert client.get_float_value("integer", 0.0) == 10.0
        assert client.get_object_value("object", {}) == {"title": "Check out"}
        assert await client.get_boolean_value_async("Boolean-Flag", False) is True


@pytest.mark.parametrize("planted", [True, 7, "x", [1]])
async def test_planted_parts_of_a_flag_are_left_out(store: Store, planted: Any) -> None:
    """A flag whose variants or metadata have another form has its value, and can't be switched."""
    kv = store.kv("shop")
    parts = {"value": "dark", "variant": [planted], "variants": planted, "metadata": planted}
    await kv.set("flag/theme", {"$flag": parts})
    async with HoldfastProvider(kv) as provider:
        details = provider.resolve_string_details("theme", "light")
    assert (details.value, details.variant, details.flag_metadata) == ("dark", None, {})
    with pytest.raises(holdfast.ValidationError, match="no variant"):
        await kv.flag("theme", "light").use("day")


async def test_missing_flag_or_wrong_type_gives_the_default(
    store: Store, client: OpenFeatureClient, clock: ManualClock
) -> None:
    """A flag that is missing, expired or of another type gives the default and says why."""
    kv = store.kv("shop")
    await kv.flag("text", "").set("yes")
    await kv.flag("brief", False).set(True, ttl=5)
    async with HoldfastProvider(kv) as provider:
        api.set_provider_and_wait(provider)
        assert client.get_boolean_value("brief", False) is True
        clock.advance(5)
        cases: list[tuple[Any, ErrorCode]] = [
            (client.get_boolean_details("missing", True), ErrorCode.FLAG_NOT_FOUND),
            (client.get_boolean_details("brief", True), ErrorCode.FLAG_NOT_FOUND),
            (client.get_boolean_details("x" * 400, True), ErrorCode.FLAG_NOT_FOUND),
            (client.get_boolean_details("text", True), ErrorCode.TYPE_MISMATCH),
            (client.get_integer_details("text", 7), ErrorCode.TYPE_MISMATCH),
            (client.get_object_details("text", {"a": 1}), ErrorCode.TYPE_MISMATCH),
        ]
        for details, code in cases:
            assert (details.error_code, details.reason) == (code, Reason.ERROR)
            assert details.value in (True, 7, {"a": 1})


async def test_changed_flag_is_seen_and_handlers_are_called(store: Store, client: OpenFeatureClient) -> None:
    """A flag that another program flips has its new value in this one, and handlers are told its name."""
    kv = store.kv("shop")
    changed: asyncio.Queue[EventDetails] = asyncio.Queue()
    async with HoldfastProvider(kv) as provider:
        api.set_provider_and_wait(provider)
        loop = asyncio.get_running_loop()

        def told(details: EventDetails) -> None:
            loop.call_soon_threadsafe(changed.put_nowait, details)

        client.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, told)
        assert client.get_boolean_value("dark", False) is False
        await kv.flag("dark", False).set(True)
        details = await asyncio.wait_for(changed.get(), 60)
        assert details.flags_changed == ["dark"]
        assert client.get_boolean_value("dark", False) is True
        await kv.flag("dark", False).clear()
        await asyncio.wait_for(changed.get(), 60)
        assert client.get_boolean_value("dark", False) is False


async def test_flags_are_stale_while_the_store_is_away(
    store: Store, client: OpenFeatureClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store is away, flags keep their values with the reason STALE, and handlers are told once."""
    kv = store.kv("shop")
    await kv.flag("dark", False).set(True)
    async with HoldfastProvider(kv, stale_after=60) as provider:
        api.set_provider_and_wait(provider)
        assert client.get_boolean_details("dark", False).reason is Reason.STATIC
        monkeypatch.setattr(Mirror, "stale_for", property(lambda _: 61.0))
        details = client.get_boolean_details("dark", False)
        assert (details.value, details.reason) == (True, Reason.STALE)
        assert client.get_provider_status() is ProviderStatus.STALE
        monkeypatch.undo()
        assert client.get_boolean_details("dark", False).reason is Reason.STATIC
        assert client.get_provider_status() is ProviderStatus.READY
    assert client.get_boolean_details("dark", False).error_code is ErrorCode.PROVIDER_NOT_READY


async def test_provider_is_not_ready_before_its_block(store: Store, client: OpenFeatureClient) -> None:
    """A provider on an asynchronous handle whose block has not begun is not ready, and says what to do."""
    provider = HoldfastProvider(store.kv("shop"))
    with pytest.raises(Exception, match="async with"):
        api.set_provider_and_wait(provider)
    assert provider.resolve_boolean_details("dark", True).error_code is ErrorCode.PROVIDER_NOT_READY


def test_provider_works_without_asyncio(tmp_path: Path, client: OpenFeatureClient) -> None:
    """A program without asyncio gives the provider a handle of holdfast.sync."""
    with holdfast.sync.open(str(tmp_path / "state.db")) as store:
        kv = store.kv("shop")
        kv.flag("dark", False).set(True)
        api.set_provider_and_wait(HoldfastProvider(kv))
        assert client.get_boolean_value("dark", False) is True
        kv.flag("dark", False).set(False)
        until = time.monotonic() + 60
        while client.get_boolean_value("dark", False) and time.monotonic() < until:
            time.sleep(0.001)
        assert client.get_boolean_value("dark", True) is False
        api.shutdown()
        assert client.get_boolean_value("dark", True) is True
