"""`holdfast delete --prefix`: all keys with a prefix.

Law: the keys can be listed first, and nothing is deleted without a confirmation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.edges.cli.asking import require_yes
from holdfast.edges.cli.output import document, line, say, shown_key

if TYPE_CHECKING:
    import holdfast
    from holdfast.edges.cli.options import WriteOptions
    from holdfast.edges.cli.target import Target


async def delete_all(prefix: str, *, dry_run: bool, yes: bool, origin: WriteOptions, target: Target) -> None:
    """Delete the keys with a prefix and print how many there were, or only print the keys."""
    if dry_run:
        async with target.look() as store:
            count = await _walk(target.keys(store), prefix, origin, target, dry_run=True)
        if not target.json:
            say(f"{_keys(count)} would be deleted")
        return
    require_yes(f"every key of {target.owner} that begins with {prefix!a} is deleted", yes=yes)
    async with target.open() as store:
        count = await _walk(target.keys(store), prefix, origin, target, dry_run=False)
    if target.json:
        document({"deleted": count})
    else:
        line(f"deleted {_keys(count)}")


async def _walk(kv: holdfast.KV, prefix: str, origin: WriteOptions, target: Target, *, dry_run: bool) -> int:
    count, cursor = 0, None
    while True:
        page = await kv.delete_prefix(
            prefix, cursor=cursor, dry_run=dry_run, writer=origin.writer, spec_ref=origin.spec_ref
        )
        count += page.count
        for key in page.keys if dry_run else ():
            if target.json:
                document({"key": key})
            else:
                line(shown_key(key))
        cursor = page.cursor
        if cursor is None:
            return count


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count} keys"
