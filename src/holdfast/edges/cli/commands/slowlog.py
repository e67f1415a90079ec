"""`holdfast slowlog`: the slow requests of a running service.

Nothing here writes, and no file is opened: a file has no slow log, but the service that has it open does.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

import holdfast
from holdfast import rules
from holdfast.edges.cli.options import Long, number
from holdfast.edges.cli.output import document, rows, say, shown_key, shown_time
from holdfast.edges.cli.schema import service_beside
from holdfast.edges.cli.target import HERE, Target, through
from holdfast.registry import is_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_COLUMNS: Final = ("time", "ms", "plugin", "verb", "key")
_MORE: Final = ("error", "request id", "number")
_USUAL: Final = 20
"""Default number of requests to print."""


async def slowlog(
    *,
    limit: Annotated[int | None, Parameter(converter=number)] = None,
    slowest: bool = False,
    long: Annotated[bool, Long] = False,
    instance: str | None = None,
    target: Target = HERE,
) -> None:
    """Print the slow requests of a running service, newest first, without values.

    What counts as slow is said by the settings slow_ms and slow_list_ms of the service, and how many it keeps
    by slow_log_size. With --plugin, or --tenant and --project, only theirs are printed.

    Parameters
    ----------
    limit
        At most so many, 1 to 10000; 20 if not given.
    slowest
        Print the slowest of all that are kept, the slowest first.
    long
        Print the error code, the request id and the number of each too.
    instance
        The instance of the service that is meant, if there are several; the JSON names the one that answered.
    """
    most = _USUAL if limit is None else rules.limit(limit)
    async with _service(target) as store:
        requests, page = await _gathered(
            store, most, slowest=slowest, instance=instance, owner=_owner(target)
        )
    if target.json:
        document({"requests": requests, "slow": page.slow, "instance": page.instance})
        return
    rows((*_COLUMNS, *_MORE) if long else _COLUMNS, (_cells(one, long=long) for one in requests))
    if not requests:
        say(f"the slow log is empty; slow requests since the service started: {page.slow}")


@asynccontextmanager
async def _service(target: Target) -> AsyncIterator[holdfast.Store]:
    """Open the named service, or the service that has the named file open."""
    address = target.address
    if is_service(address):
        async with target.opened() as store:
            yield store
        return
    served = service_beside(address)
    if served is None:
        raise holdfast.Unsupported(
            "only a running service has a slow log, and none that runs here serves this store: start one "
            "with holdfast up, or name one with --url nats://HOST:4222"
        )
    async with through(served, address) as store:
        yield store


async def _gathered(
    store: holdfast.Store, most: int, *, slowest: bool, instance: str | None, owner: str | None
) -> tuple[list[holdfast.SlowRequest], holdfast.SlowPage]:
    """Return the requests to print, and the last page that was read for them."""
    found: list[holdfast.SlowRequest] = []
    before: int | None = None
    while True:
        page = await store.slowlog(before=before, limit=rules.MAX_LIMIT, instance=instance)
        found += [one for one in page.requests if owner in (None, one.plugin)]
        before, instance = page.next, page.instance
        if before is None or (not slowest and len(found) >= most):
            break
    if slowest:
        found.sort(key=lambda one: one.milliseconds, reverse=True)
    return found[:most], page


def _owner(target: Target) -> str | None:
    """Return the owner whose requests to show. Only the command line sets it, not a variable."""
    if not target.named:
        return None
    plugin, tenant, project = target.chosen
    return plugin or f"{tenant}/{project}"


def _cells(one: holdfast.SlowRequest, *, long: bool) -> tuple[Any, ...]:
    cells = (shown_time(one.at), one.milliseconds, one.plugin, one.verb, shown_key(one.key) or None)
    return (*cells, one.error_code, one.request_id, one.number) if long else cells
