"""Tools to certify an engine of your own, or a store that you wrap.

    from holdfast.testing.conformance import Conformance

    class TestMyEngine(Conformance):
        scheme = "mine"

        @pytest.fixture
        def make_store(self, tmp_path):
            async def make(clock):
                store = holdfast.Store(MyEngine(tmp_path), clock=clock, reap=False)
                await store.start()
                return store

            return make

This package is only for tests, and nothing else in the library imports it. It needs pytest with
pytest-asyncio in its mode `auto`; only `strategies` needs hypothesis.
"""

from typing import Final

import pytest

pytest.register_assert_rewrite("holdfast.testing.conformance", "holdfast.testing.exact")

AUDIT_KEY: Final = "signs-the-audit-of-tests-alone"
"""The audit key of stores that are not given one of their own, such as those on PostgreSQL."""
