"""`holdfast batch`: several writes, all or none."""

from __future__ import annotations

from typing import Annotated, Any, Final

from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.confirmation import Yes, destroys, require_yes
from holdfast.edges.cli.options import UNNAMED, WriteOptions
from holdfast.edges.cli.output import document, line
from holdfast.edges.cli.target import HERE, Target
from holdfast.edges.cli.values import read_value

_HINT: Final = 'write a list such as \'[{"key": "a", "value": 1}]\', or @FILE to read it from a file'


@destroys
async def batch(
    content: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    yes: Yes = False,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Write several keys, all or none, and print the version of each on a line.

    A write is {"key": …, "value": …} with the fields of set, {"key": …, "delete": true} or
    {"key": …, "incr": 1}. With checks, {"checks": [{"key": …, "version": 3}], "writes": […]}, nothing is
    written unless each key has that version; 0 means that it is not there. A batch that deletes keys asks
    first.

    Parameters
    ----------
    content
        A list of writes as JSON, or an object with checks and writes; - reads stdin, @FILE a file.
    """
    checks, writes = _parts(read_value(content, text=False, hint=_HINT))
    if count := _deletions(writes):
        keys = "1 key" if count == 1 else f"{count} keys"
        require_yes(f"the batch deletes {keys} of {target.owner}", yes=yes)
    async with target.open() as store:
        done = await target.keys(store).batch(checks=checks, writes=writes, **origin.fields)
    if target.json:
        document(done)
        return
    for version in done.versions:
        line("-" if version is None else version)


def _deletions(writes: Any) -> int:
    """Return how many of the writes delete a key."""
    if not isinstance(writes, list):
        return 0
    return sum(isinstance(one, dict) and one.get("delete") is True for one in writes)


def _parts(content: Any) -> tuple[Any, Any]:
    if isinstance(content, list):
        return (), content
    if not isinstance(content, dict) or "writes" not in content or content.keys() - {"checks", "writes"}:
        raise holdfast.ValidationError(
            'a batch is a list of writes, or {"checks": [...], "writes": [...]}', field="writes"
        )
    return content.get("checks", ()), content["writes"]
