"""Tokens: what lets a caller in over HTTP, and what it may do there.

A token is `hf_<id>_<secret>`. The store keeps the id and a hash of the secret, in a namespace that no door
leads to, so that all instances of a service know every token.

The secret exists only in the answer to `create`. An expired token is gone like any expired entry. A caller
with a token makes no token that allows more than its own, or for longer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast import rules, seams
from holdfast.clock import moment
from holdfast.errors import HoldfastError, PermissionDenied, ValidationError
from holdfast.handles.kv import KV
from holdfast.model import Entry
from holdfast.pipeline.caller import Caller, Service
from holdfast.rows import SYSTEM

NAMESPACE: Final = f"{SYSTEM}tokens"
USES: Final = f"{SYSTEM}token_uses"
"""The namespace of notes of when tokens were used. A note is an entry that was written then."""
USE_SECONDS: Final = 7_776_000
"""Seconds for which a note is kept: 90 days."""
MOST_NAME: Final = 100
"""Maximum number of characters of a token's name."""
MOST_VERBS: Final = 100
MARK: Final = "hf"
"""The beginning of a token, by which tools find one that was committed or logged by mistake."""
OF_LINK: Final = "console-"
"""The beginning of the id of an operator whom a link of the console let in without a token."""
_TOKEN: Final = re.compile(rf"{MARK}_([0-9a-f]{{16}})_([A-Za-z0-9_-]{{43}})")
_AT_ONCE: Final = 100
"""Number of tokens that are read at once. Their values are far below the limit of such a read."""
_VERB: Final = re.compile(r"[a-z][a-z_]{0,39}")


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret.

    Args:
        id: Its id, by which it is revoked.
        plugin: The plugin whose keys, tables and blobs it is for, if any.
        tenant: The tenant whose project it is for, if any.
        project: The tenant's project.
        operator: Whether it is for operators, who may do everything.
        verbs: The only verbs that it allows; None allows all.
        created_at: When it was made.
        expires_at: When it expires; None if never.
        name: What people call it, if it was given a name.
        used_at: When it was last used over HTTP, to within ten minutes; None if that was not in the last 90
            days. Only `Tokens.list` looks this up.
    """

    id: str
    plugin: str | None = None
    tenant: str | None = None
    project: str | None = None
    operator: bool = False
    verbs: tuple[str, ...] | None = None
    created_at: datetime
    expires_at: datetime | None = None
    name: str | None = None
    used_at: datetime | None = None

    @property
    def owner(self) -> str:
        """Who it lets in: a plugin, a `tenant/project`, or `operator`."""
        if self.operator:
            return "operator"
        return self.plugin or f"{self.tenant}/{self.project}"

    def allows(self, family: str, owner: str, verb: str) -> bool:
        """Return whether it lets a caller do this."""
        if self.verbs is not None and verb not in self.verbs:
            return False
        return self.operator or (family != "admin" and owner == self.owner)

    def require_grant(self, other: Token) -> None:
        """Check that a caller with this token may make another one.

        Raises:
            PermissionDenied: The other one would allow more than this one, or for longer.
        """
        more = None
        if not self.operator and other.owner != self.owner:
            more = f"it is for {self.owner}"
        elif self.verbs is not None and not (other.verbs and set(other.verbs) <= set(self.verbs)):
            more = f"it allows {', '.join(self.verbs)}; name only such verbs for the new token"
        elif self.expires_at is not None and (other.expires_at is None or other.expires_at > self.expires_at):
            more = f"it expires at {self.expires_at.isoformat()}, and the new token must expire before that"
        if more is not None:
            raise PermissionDenied(f"this token can't grant more than it has: {more}")


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was just made, with its secret: the only time that it is shown."""

    token: str
    about: Token


class _Kept(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The value of a token's entry."""

    hash: str
    plugin: str | None = None
    tenant: str | None = None
    project: str | None = None
    operator: bool = False
    verbs: tuple[str, ...] | None = None
    name: str | None = None


class Tokens:
    """The tokens of a store. Get them from `Store.tokens`."""

    def __init__(self, store: Caller) -> None:
        self._store = store
        self._kv = KV(store, store.verbs(NAMESPACE))
        self._uses = KV(store, store.verbs(USES))

    async def create(
        self,
        *,
        plugin: str | None = None,
        tenant: str | None = None,
        project: str | None = None,
        operator: bool = False,
        verbs: Sequence[str] | None = None,
        ttl: int | None = None,
        name: str | None = None,
        by: str | None = None,
    ) -> NewToken:
        """Make a token for a plugin, for a tenant's project, or for operators.

        Args:
            plugin: The plugin whose keys, tables and blobs it is for.
            tenant: The tenant whose project it is for, with `project`.
            project: The tenant's project.
            operator: Whether it is for operators, who may do everything.
            verbs: The only verbs that it allows; all if not given.
            ttl: Seconds until it expires; None for never.
            name: What people call it, in at most 100 characters.
            by: The id of the token of the caller who asks for it, if it was a token that let the caller in.

        Returns:
            The token with its secret, which is not kept.

        Raises:
            ValidationError: It is for none of these or for several, or an argument breaks its rule.
            PermissionDenied: It would allow more than the caller's own token, or for longer.
        """
        kept = _kept(plugin=plugin, tenant=tenant, project=project, operator=operator, verbs=verbs, name=name)
        if isinstance(self._store, Service):
            fields = {name: field for name, field in msgspec.to_builtins(kept).items() if name != "hash"}
            reply = await self._store.operator("token_create", fields | {"ttl": ttl}, writes=True)
            return msgspec.convert(reply, NewToken)
        id, secret = seams.token(8), seams.secret(32)
        if by is not None:
            await self._require_grant(by, id, kept, rules.ttl(ttl))
        kept.hash = _hashed(secret)
        entry = await self._kv.set(id, msgspec.to_builtins(kept), ttl=ttl, expected_version=0)
        return NewToken(
            token=f"{MARK}_{id}_{secret}", about=_token(id, kept, entry.created_at, entry.expires_at)
        )

    async def _require_grant(self, by: str, id: str, kept: _Kept, ttl: int | None) -> None:
        own = (await self.get([by])).get(by)
        if own is None:
            raise PermissionDenied("this token has expired or been revoked, and grants nothing")
        now = self._store.now()
        expires_at = None if ttl is None else moment(now + ttl * 1000)
        own.require_grant(_token(id, kept, moment(now), expires_at))

    async def list(self) -> list[Token]:
        """List the tokens that are valid, in the order of their ids.

        Returns:
            The tokens, without their secrets, each with when it was last used.
        """
        if isinstance(self._store, Service):
            return msgspec.convert((await self._store.operator("tokens", {}))["tokens"], list[Token])
        used = {entry.key: entry.updated_at async for entry in _entries_of(self._uses)}
        return [
            msgspec.structs.replace(_token_of(entry), used_at=used.get(entry.key))
            async for entry in _entries_of(self._kv)
        ]

    async def note_use(self, id: str) -> None:
        """Note that a token is used now.

        Args:
            id: Its id.
        """
        await self._uses.set(id, True, ttl=USE_SECONDS)

    async def get(self, ids: Iterable[str]) -> dict[str, Token]:
        """Get tokens by their ids.

        Args:
            ids: Their ids, as `list` shows them.

        Returns:
            Those that are valid, by id.
        """
        if isinstance(self._store, Service):
            names = set(ids)
            return {token.id: token for token in await self.list() if token.id in names}
        return {name: _token_of(entry) for name, entry in (await self._entries(ids)).items()}

    async def revoke(self, id: str) -> bool:
        """Revoke a token. Every instance of a service refuses it within a second.

        Args:
            id: Its id, as `list` shows it, or the whole token.

        Returns:
            True if there was such a token.
        """
        whole = _TOKEN.fullmatch(id)
        name = whole[1] if whole else id
        if isinstance(self._store, Service):
            return bool((await self._store.operator("token_revoke", {"id": name}, writes=True))["revoked"])
        revoked = await self._kv.delete(name)
        await self._uses.delete(name)
        return revoked

    async def find(self, token: str) -> Token | None:
        """Get a token by all of it.

        Args:
            token: The token as `create` returned it.

        Returns:
            What it allows; None if there is no such token.
        """
        parts = _TOKEN.fullmatch(token)
        entry = None if parts is None else await self._kv.get(parts[1])
        if parts is None or entry is None or not _is_of(parts[2], entry):
            return None
        return _token_of(entry)

    async def find_all(self, tokens: Iterable[str]) -> dict[str, Token]:
        """Get several tokens by all of each, with one read for a hundred of them.

        Args:
            tokens: The tokens as `create` returned them.

        Returns:
            What each allows, by the token. Those that do not exist are left out.
        """
        matches = [(text, parts) for text in tokens if (parts := _TOKEN.fullmatch(text)) is not None]
        entries = await self._entries({parts[1] for _, parts in matches})
        return {
            text: _token_of(entries[parts[1]])
            for text, parts in matches
            if parts[1] in entries and _is_of(parts[2], entries[parts[1]])
        }

    async def _entries(self, ids: Iterable[str]) -> dict[str, Entry]:
        names = sorted(set(ids))
        entries: dict[str, Entry] = {}
        for start in range(0, len(names), _AT_ONCE):
            for entry in await self._kv.get_many(names[start : start + _AT_ONCE]):
                if isinstance(entry, HoldfastError):
                    raise entry
                if entry is not None:
                    entries[entry.key] = entry
        return entries


async def _entries_of(kv: KV) -> AsyncIterator[Entry]:
    """Yield all entries of a namespace."""
    cursor = None
    while True:
        page = await kv.list(cursor=cursor, values=True)
        for entry in page.entries or ():
            yield entry
        cursor = page.cursor
        if cursor is None:
            return


def has_form(text: str) -> bool:
    """Return whether a text could be a token. To know that needs no read and no hash."""
    return _TOKEN.fullmatch(text) is not None


def _kept(
    *,
    plugin: object,
    tenant: object,
    project: object,
    operator: object,
    verbs: object,
    name: object,
) -> _Kept:
    kept = _Kept(hash="")
    if plugin is not None:
        kept.plugin = rules.plugin_name(plugin)
    if tenant is not None or project is not None:
        kept.tenant = rules.tenant_part(tenant, field="tenant")
        kept.project = rules.tenant_part(project, field="project")
    if not isinstance(operator, bool):
        raise ValidationError("operator must be true or false", field="operator")
    kept.operator = operator
    if (kept.plugin is not None) + (kept.tenant is not None) + operator != 1:
        raise ValidationError(
            "a token is for one plugin, for one tenant's project, or for operators", field="plugin"
        )
    kept.verbs = None if verbs is None else _verbs(verbs)
    kept.name = None if name is None else rules.legal_text(name, field="name", most=MOST_NAME) or None
    return kept


def _verbs(verbs: Any) -> tuple[str, ...]:
    """Return the verbs of a token. To watch is to ask for changes."""
    if not isinstance(verbs, (list, tuple)) or not 0 < len(verbs) <= MOST_VERBS:
        raise ValidationError(f"verbs must be a list of 1 to {MOST_VERBS} verbs", field="verbs")
    for verb in verbs:
        if not isinstance(verb, str) or not _VERB.fullmatch(verb):
            raise ValidationError(f"there is no verb {rules.shown(verb)}", field="verbs")
    return tuple(sorted({"changes" if verb == "watch" else verb for verb in verbs}))


def _is_of(secret: str, entry: Entry) -> bool:
    """Return whether a secret is that of a token's entry."""
    return hmac.compare_digest(msgspec.convert(entry.value, _Kept).hash, _hashed(secret))


def _hashed(secret: str) -> str:
    """Return the hash of a secret, which is random and long enough to need no slow one."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _token_of(entry: Entry) -> Token:
    return _token(entry.key, msgspec.convert(entry.value, _Kept), entry.created_at, entry.expires_at)


def _token(id: str, kept: _Kept, created_at: datetime, expires_at: datetime | None) -> Token:
    return Token(
        id=id,
        plugin=kept.plugin,
        tenant=kept.tenant,
        project=kept.project,
        operator=kept.operator,
        verbs=kept.verbs,
        created_at=created_at,
        expires_at=expires_at,
        name=kept.name,
    )
