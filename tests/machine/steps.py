"""What the machine's calls are made of.

Few names, keys and values, so that calls collide; a version and a fence are words here, since only the
machine knows what they mean at the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from holdfast.model import KEEP
from tests.machine.plain import INTENTIONS, REQUESTS

if TYPE_CHECKING:
    from tests.machine.ledger import Plain

NAMES = st.sampled_from(["plugin", "plugin", "project"])
ALL_KEYS = ["a", "a/b", "b"]
KEYS = st.sampled_from(ALL_KEYS)
LOGS = st.sampled_from(["a", "a", "log"])
APPENDS: st.SearchStrategy[Plain] = st.fixed_dictionaries(
    {"ttl": st.sampled_from([None, None, 1, 60, 0]), "keep": st.sampled_from([None, None, 1, 2])}
)
PREFIXES = st.sampled_from(["", "a", "a/", "b", "c"])
VALUES: st.SearchStrategy[Any] = st.sampled_from([1, 2.5, -0.0, True, None, "é", [1, {"a": None}], 10**30])
ADDENDS: st.SearchStrategy[Any] = st.sampled_from([1, 1, -2, 7])
TTLS = st.sampled_from([1, 1, 2, 60, 100_000, 0])
VERSIONS = st.sampled_from(["any"] * 5 + ["right", "right", "zero", "next", "last"])
SEMANTICS: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, None, None, {"purpose": "config"}, {"purpose": "lock"}, {"purpose": "cache"}),
        *({"producer": "p"}, {"consumer_hints": ["a", "b"]}, {"purpose": "flag", "ttl_seconds": 2}),
    ]
)
EXPECTED: st.SearchStrategy[Plain] = st.fixed_dictionaries({"expected_version": VERSIONS})
INCRS: st.SearchStrategy[Plain] = st.fixed_dictionaries(
    {"by": ADDENDS, "expected_version": VERSIONS}, optional={"ttl": TTLS, "only_if_exists": st.booleans()}
)
RESTORES: st.SearchStrategy[Plain] = st.fixed_dictionaries(
    {"expected_version": VERSIONS}, optional={"ttl": TTLS}
)
PROVENANCE: st.SearchStrategy[Plain] = st.sampled_from(
    [
        *[{}] * 8,
        *[{"request_id": request_id} for request_id in REQUESTS] * 2,
        {"writer": "agent:task", "spec_ref": "doc"},
        {"request_id": "r1", "writer": "agent:task"},
        {"fence": "newest"},
        {"fence": "old"},
        {"fence": "newest", "request_id": "r2"},
    ]
)
"""Mostly nothing: what is rarely given is rarely in the way of a call that succeeds."""
INTENDED = st.sampled_from(INTENTIONS)
INTENDING = st.sampled_from(["set", "set", "incr", "append", "append", "delete"])
AIMED = st.sampled_from([True, True, True, False])
"""Whether a call chooses its key among those on which it can succeed."""
SELDOM = st.sampled_from([False, False, False, True])
LATE = st.sampled_from([False, False, True, None])
"""Whether a restore comes too late; None for one of whatever key."""
EARLY = st.sampled_from([0, 0, 0.001, -0.5])
"""By how many seconds a wait for a deadline ends before it."""
PAUSES = st.sampled_from([0, 0, 0, 0, 1, 86_399, 86_400, 604_800])
"""Seconds before a call is repeated: shorter than, as long as and longer than a request is remembered."""


def _set(fields: Plain) -> Plain:
    """A set has a ttl or semantics with one, not both."""
    if fields["semantics"] is not None and "ttl_seconds" in fields["semantics"]:
        return {**fields, "ttl": None}
    return fields


def _one_deadline(writes: list[Plain]) -> list[Plain]:
    """Several writes of one step of which only the first sets a deadline."""
    later = [
        {**write, "ttl": None if isinstance(write.get("ttl"), int) else write.get("ttl"), "semantics": None}
        if "value" in write
        else {name: value for name, value in write.items() if name != "ttl"}
        for write in writes[1:]
    ]
    return writes[:1] + later


SETS: st.SearchStrategy[Plain] = st.fixed_dictionaries(
    {
        "expected_version": VERSIONS,
        "ttl": st.one_of(st.none(), TTLS, st.just(KEEP)),
        "semantics": SEMANTICS,
    }
).map(_set)
LEGAL_TTLS = st.one_of(st.none(), TTLS.filter(bool), st.just(KEEP))
ITEM: st.SearchStrategy[Plain] = st.fixed_dictionaries(
    {
        "key": KEYS,
        "value": VALUES,
        "expected_version": VERSIONS,
        "ttl": LEGAL_TTLS,
        "semantics": SEMANTICS,
    }
).map(_set)
ITEMS = st.lists(ITEM, min_size=1, max_size=3).map(_one_deadline)
CHECKS: st.SearchStrategy[list[Plain]] = st.lists(
    st.fixed_dictionaries(
        {"key": KEYS, "expected_version": st.sampled_from(["right", "right", "right", "zero", "next"])}
    ),
    max_size=2,
)
WRITE: st.SearchStrategy[Plain] = st.one_of(
    st.fixed_dictionaries({"key": KEYS, "value": VALUES, "ttl": LEGAL_TTLS, "semantics": SEMANTICS}).map(
        _set
    ),
    st.fixed_dictionaries({"key": KEYS, "delete": st.just(True)}),
    st.fixed_dictionaries({"key": KEYS, "incr": ADDENDS}, optional={"ttl": TTLS.filter(bool)}),
    st.fixed_dictionaries({"guard": st.just("lock")}),
)
WRITES = st.lists(WRITE, max_size=4).map(_one_deadline)
LARGE_ITEMS: st.SearchStrategy[list[Plain]] = st.lists(KEYS, min_size=3, max_size=3).map(
    lambda keys: [{"key": key, "value": f"{number}" * 40_000} for number, key in enumerate(keys)]
)
"""Items of a call that is so large that it is executed in a group of its own."""
CALLS: st.SearchStrategy[tuple[str, tuple[Any, ...]]] = st.one_of(
    st.tuples(st.just("set_many"), st.tuples(LARGE_ITEMS)),
    st.tuples(st.just("set"), st.tuples(KEYS, VALUES)),
    st.tuples(st.just("incr"), st.tuples(KEYS, ADDENDS)),
    st.tuples(st.sampled_from(["delete", "remove_ttl", "restore", "get", "get_ttl"]), st.tuples(KEYS)),
    st.tuples(st.just("get_many"), st.tuples(st.lists(KEYS, max_size=3))),
    st.tuples(st.just("changes"), st.tuples(st.just(0))),
    st.tuples(st.just("history"), st.tuples(KEYS)),
)


def sets_deadline(part: Any) -> bool:
    """Whether somewhere in the fields of a call there is a deadline to be set."""
    match part:
        case dict():
            return any(
                isinstance(value, int) if name in ("ttl", "ttl_seconds") else sets_deadline(value)
                for name, value in part.items()
            )
        case list() | tuple():
            return any(map(sets_deadline, part))
        case _:
            return False
