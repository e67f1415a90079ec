"""The makers of commands, with a method for each verb: what handles and doors have, without a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.commands import Append, Batch, Delete, Incr, Many, Restore, Set, SetTtl, Touch
from holdfast.declare import DECLARED
from holdfast.edges.calls import FAMILIES
from holdfast.tables import commands
from holdfast.verbs import keys, tables
from holdfast.verbs.fields import Several

if TYPE_CHECKING:
    from holdfast.declare import Declaration
    from holdfast.store import Store


class Verbs(keys.Verbs):
    """Makes commands of the arguments of Python calls."""

    def set(self, key: object, value: object, **fields: Any) -> Set:
        """Make a command that stores a value."""
        return self.command(Set, key=key, value=value, **fields)

    def delete(self, key: object, **fields: Any) -> Delete:
        """Make a command that removes a key."""
        return self.command(Delete, key=key, **fields)

    def incr(self, key: object, by: object = 1, **fields: Any) -> Incr:
        """Make a command that adds to a number."""
        return self.command(Incr, key=key, by=by, **fields)

    def append(self, name: object, value: object, **fields: Any) -> Append:
        """Make a command that adds an item to a log."""
        return self.command(Append, name=name, value=value, **fields)

    def set_ttl(self, key: object, ttl_seconds: object, **fields: Any) -> SetTtl:
        """Make a command that sets a deadline."""
        command: SetTtl = DECLARED["set_ttl"].call(self, key=key, ttl_seconds=ttl_seconds, **fields)
        return command

    def remove_ttl(self, key: object, **fields: Any) -> SetTtl:
        """Make a command that removes a deadline."""
        command: SetTtl = DECLARED["remove_ttl"].call(self, key=key, **fields)
        return command

    def touch(self, key: object, ttl_seconds: object, **fields: Any) -> Touch:
        """Make a command that sets the deadline of a key if it exists."""
        return self.command(Touch, key=key, ttl_seconds=ttl_seconds, **fields)

    def restore(self, key: object, **fields: Any) -> Restore:
        """Make a command that restores a key from the trash."""
        return self.command(Restore, key=key, **fields)

    def set_many(self, items: object, **fields: Any) -> tuple[Many, Several[Set]]:
        """Make a command that stores several values, each on its own. An item has the fields of a set."""
        made: tuple[Many, Several[Set]] = DECLARED["set_many"].call(self, items=items, **fields)
        return made

    def delete_many(self, keys: object, **fields: Any) -> tuple[Many, Several[Delete]]:
        """Make a command that removes several keys, each on its own."""
        made: tuple[Many, Several[Delete]] = DECLARED["delete_many"].call(self, keys=keys, **fields)
        return made

    def batch(self, *, writes: object, **fields: Any) -> Batch:
        """Make a command that executes all of its writes or none."""
        return self.command(Batch, writes=writes, **fields)


class TableVerbs(tables.TableVerbs):
    """Makes commands of the fields of calls on tables."""

    def __getattr__(self, verb: str) -> Callable[[dict[str, Any]], Any]:
        return partial(made, self, commands.VERBS[verb])


def made(caller: tables.TableVerbs, declaration: Declaration, fields: Mapping[str, Any]) -> Any:
    """Return what a call on tables with these fields makes."""
    message: Any = declaration.of_fields(fields)
    return declaration.make(caller, message, declaration.origin_of(caller, message, fields.get("deadline")))


def table_calls(store: Store, namespace: str) -> Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]:
    """Return what answers the verbs on tables as a door does."""
    called = store.tables_in(namespace)
    return lambda verb, fields: FAMILIES["table"][verb].call(called, fields)
