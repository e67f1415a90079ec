"""Django's cache and sessions in Holdfast, on every ground."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from http import HTTPStatus
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
from django.conf import settings
from django.contrib.sessions.backends.base import CreateError, UpdateError
from django.core.exceptions import ImproperlyConfigured
from django.test.utils import override_settings
from django.utils.functional import empty as unset

import holdfast.sync
from holdfast.integrations.django import HoldfastCache, stores
from holdfast.sync.kv import KV
from tests.conformance.database import empty
from tests.integrations.grounds import Ground

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.clock import ManualClock
    from holdfast.integrations.django.sessions import SessionStore
    from holdfast.sync import Store
    from tests.integrations.conftest import Places

pytestmark = pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")

LARGE: Final = Random(7).randbytes(200_000)
STRANGE: Final = ["a/b", "a", "%2F", "#", "", "snow ☃", "nul \x00", "lone \ud800", "x" * 1000, "x" * 1001]


@pytest.fixture
def url(kind_and_places: Places, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty store, which a thread of its own serves if it needs a service."""
    kind, storage, bus = kind_and_places
    with_clock = SimpleNamespace(open=lambda url: holdfast.sync.open(url, clock=clock, reap=False))
    monkeypatch.setattr(stores, "sync", with_clock)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    ground = Ground(kind, storage, bus, clock)

    def run(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(60)

    if kind == "postgresql":
        run(empty(storage))
    run(ground.__aenter__())
    yield ground.url
    stores.close(ground.url)
    run(ground.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def here() -> Iterator[str]:
    """The URL of a store, for rules that do not depend on where it is."""
    yield "memory://"
    stores.close("memory://")


@pytest.fixture
def configured() -> Iterator[None]:
    """Django with settings of its own, in place of those that another test may have made."""
    before, settings._wrapped = settings._wrapped, unset
    settings.configure(SECRET_KEY="for these tests alone", USE_TZ=True)
    yield
    settings._wrapped = before


def cache_at(url: str, **params: Any) -> HoldfastCache:
    """A cache."""
    return HoldfastCache(url, params)


def session_at(url: str, key: str | None = None) -> SessionStore:
    """A session."""
    from holdfast.integrations.django.sessions import SessionStore

    with override_settings(HOLDFAST_SESSION_URL=url):
        return SessionStore(key)


def blobs_of(store: Store, plugin: str) -> int:
    """The number of blobs in a namespace."""
    return len(store.blobs(plugin).list().blobs)


def test_cache_returns_values_of_all_kinds(url: str) -> None:
    """Whatever can be pickled comes back as it was, under any key; a missing key is told from None."""
    cache = cache_at(url)
    values = [1, -(2**70), True, None, HTTPStatus.OK, Decimal("1.10"), "é", b"\x00", {"a": [1, (2,)]}, LARGE]
    for key, value in zip(STRANGE, values, strict=True):
        cache.set(key, value)
    for key, value in zip(STRANGE, values, strict=True):
        found = cache.get(key, "missing")
        assert (found, type(found)) == (value, type(value))
        assert cache.has_key(key)
    assert cache.get_many([*STRANGE, "missing"]) == dict(zip(STRANGE, values, strict=True))
    assert cache.get("missing", "default") == "default"
    assert cache.get("a", version=2) is None


def test_removed_values_leave_no_bytes(url: str) -> None:
    """What is deleted or replaced is gone with its bytes; clear removes all, of every version."""
    cache, store = cache_at(url, TIMEOUT=None), stores.opened(url)
    cache.set_many({"small": "s", "large": LARGE, "other": LARGE})
    assert blobs_of(store, "cache") == 2
    cache.set("other", LARGE[::-1])
    cache.set("large", "now small")
    assert blobs_of(store, "cache") == 1
    assert cache.delete("other") is True
    assert cache.delete("other") is False
    assert blobs_of(store, "cache") == 0
    cache.set("large", LARGE, version=3)
    cache.delete_many(["small", "missing"])
    assert cache.get_many(["small", "large"]) == {"large": "now small"}
    cache.clear()
    assert cache.get("large", version=3) is None
    assert (store.kv("cache").list().keys, blobs_of(store, "cache")) == ([], 0)


def test_racing_threads_lose_no_add_and_no_count(url: str) -> None:
    """Of threads that add a key one succeeds; threads that count lose no count."""
    cache = cache_at(url)
    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(lambda value: cache.add("k", value), [*range(4), LARGE, LARGE[:-1], "a", "b"]))
        assert added.count(True) == 1
        assert blobs_of(stores.opened(url), "cache") == int(isinstance(cache.get("k"), bytes))
        cache.set("count", 0)
        assert sorted(pool.map(lambda _: cache.incr("count"), range(16))) == list(range(1, 17))


def test_cache_timeouts_follow_django(url: str, clock: ManualClock) -> None:
    """Timeouts are rounded up to whole seconds; one of 0 or less stores nothing; None means for ever."""
    cache = cache_at(url, TIMEOUT=10)
    cache.set("half", 1, 0.5)
    cache.set("default", LARGE)
    cache.set("touched", LARGE, 1)
    cache.set("ever", 1, None)
    assert cache.touch("touched", 100)
    cache.set("ever", 2, 0)
    assert cache.get("ever") is None
    assert cache.add("never", 1, 0)
    assert not cache.touch("never")
    cache.set("ever", LARGE, None)
    assert cache.incr("half") == 2
    clock.advance(1)
    assert cache.get_many(["half", "default", "touched"]) == {"default": LARGE, "touched": LARGE}
    clock.advance(98)
    assert cache.get_many(["default", "touched"]) == {"touched": LARGE}
    clock.advance(1)
    assert cache.get("touched") is None
    assert cache.get("ever") == LARGE
    assert cache.touch("ever", -1)
    assert not cache.has_key("ever")


@pytest.mark.usefixtures("configured")
def test_session_lasts_for_its_lifetime(url: str, clock: ManualClock) -> None:
    """A session is there for its lifetime, under a key that the store does not show."""
    first = session_at(url)
    first["user"] = "ada"
    first["large"] = LARGE.hex()
    first.set_expiry(99)
    first.save()
    assert first.session_key is not None
    again = session_at(url, first.session_key)
    assert (again["user"], again["large"]) == ("ada", LARGE.hex())
    keys = stores.opened(url).kv("sessions").list().keys
    assert len(keys) == 1
    assert first.session_key not in keys[0]
    clock.advance(98)
    assert session_at(url, first.session_key)["user"] == "ada"
    clock.advance(1)
    late = session_at(url, first.session_key)
    assert dict(late.items()) == {}
    assert late.session_key is None


@pytest.mark.usefixtures("configured")
def test_login_changes_and_logout_ends_the_session_key(url: str) -> None:
    """A login gives a session a new key; a logout ends it, and no other request brings it back."""
    session = session_at(url)
    session["user"] = "ada"
    session.save()
    old = session.session_key
    assert old is not None
    under_way = session_at(url, old)
    under_way["late"] = 1
    session.cycle_key()
    assert session.session_key not in (None, old)
    assert not session.exists(old)
    with pytest.raises(UpdateError):
        under_way.save()
    with pytest.raises(CreateError):
        session.save(must_create=True)
    session["more"] = 1
    session.save()
    assert dict(session_at(url, session.session_key).items()) == {"user": "ada", "more": 1}
    session.flush()
    assert session.is_empty()
    assert stores.opened(url).kv("sessions").list().keys == []


@pytest.mark.usefixtures("configured")
def test_a_session_that_has_expired_is_not_saved(here: str) -> None:
    """A session whose deadline has passed is removed when it is saved."""
    session = session_at(here)
    session["a"] = 1
    session.save()
    session.set_expiry(-10)
    session.save()
    assert session.session_key is not None
    assert not session.exists(session.session_key)
    type(session).clear_expired()


def test_incr_works_on_all_numbers(here: str) -> None:
    """incr works on what can be added to, keeps the timeout, and says what is missing or wrong."""
    cache = cache_at(here)
    cache.set("price", Decimal("1.5"), 100)
    assert cache.incr("price", 2) == Decimal("3.5")
    entry = stores.opened(here).kv("cache").get("cache/:1:price")
    assert entry is not None
    assert entry.expires_at is not None
    assert cache.decr("price") == Decimal("2.5")
    with pytest.raises(ValueError, match="'missing' not found"):
        cache.incr("missing")
    cache.set("half", 1)
    assert (cache.incr("half", 1.5), cache.get("half"), cache.incr("half")) == (2.5, 2.5, 3.5)
    cache.set("text", "a")
    with pytest.raises(TypeError):
        cache.incr("text")


@pytest.mark.usefixtures("configured")
def test_a_lost_answer_loses_no_value(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large value whose write got no answer is there afterwards, since it may have replaced another one."""
    cache, session = cache_at(here), session_at(here)
    cache.set("k", LARGE)
    session["large"] = LARGE.hex()
    session.save()
    store_it = KV.set

    def unanswered(self: KV, *arguments: Any, **named: Any) -> Any:
        store_it(self, *arguments, **named)
        raise holdfast.OutcomeUnknown("the answer is lost")

    session["user"] = "ada"
    with monkeypatch.context() as lost:
        lost.setattr(KV, "set", unanswered)
        with pytest.raises(holdfast.OutcomeUnknown):
            cache.set("k", LARGE[::-1])
        with pytest.raises(holdfast.OutcomeUnknown):
            session.save()
    assert cache.get("k") == LARGE[::-1]
    assert session_at(here, session.session_key)["user"] == "ada"


def test_many_keys_are_read_and_removed_in_one_call(here: str) -> None:
    """More keys than one call takes, and more bytes, are read and removed in one go."""
    cache = cache_at(here)
    values: dict[str, Any] = {f"key {number}": number for number in range(1_100)}
    values |= {f"key {number}": LARGE[:30_000] for number in range(0, 1_100, 20)}
    values |= {"key 7": LARGE, "key 8": True}
    assert cache.set_many(values) == []
    assert cache.get_many(values) == values
    cache.delete_many(values)
    assert cache.get_many(values) == {}


def test_caches_keep_their_keys_apart(here: str) -> None:
    """Caches with other prefixes, versions or namespaces have keys of their own."""
    caches = [
        cache_at(here),
        cache_at(here, KEY_PREFIX="p"),
        cache_at(here, VERSION=2),
        cache_at(here, OPTIONS={"plugin": "other"}),
    ]
    for number, cache in enumerate(caches):
        assert cache.add("k", number)
    assert [cache.get("k") for cache in caches] == [0, 1, 2, 3]
    caches[0].clear()
    assert [cache.get("k") for cache in caches] == [None, None, None, 3]


async def test_cache_has_asynchronous_methods(here: str) -> None:
    """Django's methods for asynchronous views work too."""
    cache = cache_at(here)
    await cache.aset("k", 1)
    assert (await cache.aincr("k"), await cache.aget("k"), await cache.aget("m", 3)) == (2, 2, 3)


@pytest.mark.usefixtures("configured")
def test_missing_settings_are_named() -> None:
    """A cache or session without a URL says which setting it needs."""
    with pytest.raises(ImproperlyConfigured, match="LOCATION"):
        HoldfastCache("", {})
    with pytest.raises(ImproperlyConfigured, match="HOLDFAST_SESSION_URL"):
        session_at("")


def test_a_fork_opens_a_store_of_its_own() -> None:
    """A worker that was forked from a process that has used the cache can use it."""
    code = (
        "import os\n"
        "from holdfast.integrations.django import HoldfastCache\n"
        "cache = HoldfastCache('memory://', {})\n"
        "cache.set('k', 1)\n"
        "child = os.fork()\n"
        "cache.set('k', 2 + cache.get('k', 0))\n"
        "print(cache.get('k'), flush=True)\n"
        "if child: os.waitpid(child, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert sorted(done.stdout.split()) == ["2", "3"]
