"""The configuration of a nats-server that isolates the users on the bus from each other.

    accounts        one account for each user of a plugin or a tenant's project. Subjects cross between
                    accounts only where the service exports and the user imports them, and the server replaces
                    every reply subject with one of its own.
    permissions     one account for all. Each user may publish to its own subjects and listen to its own inbox
                    and events. The server does not check reply subjects, so the service has to.

A user of a plugin or of a tenant's project may have every verb or some of them:

    trivia              every verb
    trivia:read         every verb that writes nothing
    audit:get,list      these verbs alone
    acme/web:read,set   the same for a tenant's project

The catalogue says which verbs exist and which of them write. Names and credentials go in, text comes out; the
same values give the same text, and nothing here reads files, writes files or connects. Exports with wildcards
must not overlap, because the server would pick an arbitrary one to check an import. An export of exactly the
imported subject takes precedence, so exports of single verbs may lie within others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast import extras, rules, seams
from holdfast.edges.calls import FAMILIES, reading
from holdfast.errors import ValidationError
from holdfast.families import OF_PLUGINS, SEMANTIC
from holdfast.wire.subjects import (
    GRANTED,
    LINK,
    LINKS_TOLD,
    MOST_LINKS,
    ONLY,
    OPERATOR,
    QUEUE,
    SERVICE_INBOX,
    link_subjects,
    links_question,
    own_subjects,
    ready_subject,
)

Kind: TypeAlias = Literal["nkeys", "passwords"]


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials of a user: a password, or the seed of an nkey with its public key."""

    user: str
    secret: str
    public: str | None = None

    @property
    def inbox(self) -> str:
        """The prefix of the subjects on which this user receives replies."""
        return f"_INBOX.{tokens(self.user)}"

    def options(self) -> dict[str, Any]:
        """Return the arguments with which a client connects."""
        login = self.entry() if self.public is None else {"nkeys_seed_str": self.secret}
        return {**login, "inbox_prefix": self.inbox}

    def entry(self) -> dict[str, str]:
        """Return the user's entry in the configuration, under a name that is valid in a URL."""
        if self.public is None:
            return {"user": tokens(self.user), "password": self.secret}
        return {"nkey": self.public}


def new_credentials(user: str, kind: Kind, *, random: Callable[[int], bytes] | None = None) -> Credentials:
    """Generate credentials."""
    random = seams.entropy if random is None else random
    if kind == "passwords":
        return Credentials(user=user, secret=random(24).hex())
    with extras.needed("nats", "making nkeys"):
        # late: optional driver
        import nkeys  # type: ignore[import-untyped]

    return credentials_of(user, nkeys.encode_seed(random(32), nkeys.PREFIX_BYTE_USER).decode(), kind)


def credentials_of(user: str, secret: str, kind: Kind) -> Credentials:
    """Return the credentials for a secret that was issued before.

    Raises:
        ValidationError: The secret should be the seed of an nkey, but is not.
    """
    if kind == "passwords":
        return Credentials(user=user, secret=secret)
    with extras.needed("nats", "reading nkeys"):
        # late: optional driver
        import nkeys

    try:
        public = nkeys.from_seed(secret.encode()).public_key.decode()
    except (nkeys.NkeysError, ValueError):
        raise ValidationError(f"the secret of {user} is not the seed of an nkey", field="secret") from None
    return Credentials(user=user, secret=secret, public=public)


READ: Final = "read"
"""The word that stands for all verbs that write nothing."""
EVENTS: Final = "changes"
"""The verb whose users may also receive the events of its family, which carry the same information."""

PLUGIN_FAMILIES: Final = OF_PLUGINS
TENANT_FAMILIES: Final = (SEMANTIC,)

_READY: Final = "ready"
"""The verb granted to every user. It reveals nothing about data."""
_LONGEST: Final = 100
"""Maximum length of the part after the colon, which becomes part of a file name."""

READING: Final[dict[str, frozenset[str]]] = {
    family: reading(family) for family in (*PLUGIN_FAMILIES, *TENANT_FAMILIES)
}
"""The verbs of each family that write nothing."""
VERBS: Final[dict[str, frozenset[str]]] = {
    "kv": frozenset(FAMILIES["kv"]),
    "table": frozenset(FAMILIES["table"]),
    "blob": frozenset(FAMILIES["blob"]),
    SEMANTIC: frozenset(FAMILIES[SEMANTIC]) | {"put"},
}
"""Every verb of each family, as named in subjects."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user that logs in to the NATS server.

    Args:
        name: The owner's name; for a restricted user also a colon and the permitted verbs.
        owner: The plugin, or the tenant's project.
        families: The families of subjects that the owner has.
        verbs: The verbs that the user may use; None for all.
    """

    name: str
    owner: str
    families: tuple[str, ...]
    verbs: frozenset[str] | None = None

    def verbs_of(self, family: str) -> list[str]:
        """Return the verbs of a family that this user may use, as named in subjects."""
        if self.verbs is None:
            return sorted(VERBS[family])
        return sorted(VERBS[family] & self.verbs)

    @property
    def told(self) -> list[str]:
        """The families whose events this user may receive."""
        return [family for family in self.families if EVENTS in self.verbs_of(family)]


def plugin_user(text: str) -> User:
    """Parse `plugin` or `plugin:verbs` into a user.

    Raises:
        InvalidPluginName: The plugin's name breaks its rule.
        ValidationError: A verb is unknown, or none follows the colon.
    """
    owner, colon, verbs = text.partition(":")
    rules.plugin_name(owner)
    return _user(owner, verbs if colon else None, PLUGIN_FAMILIES, field="plugin")


def tenant_user(text: str) -> User:
    """Parse `tenant/project` or `tenant/project:verbs` into a user.

    Raises:
        ValidationError: A name breaks its rule, a verb is unknown, or none follows the colon.
    """
    owner, colon, verbs = text.partition(":")
    tenant, _, project = owner.partition("/")
    rules.tenant_part(tenant, field="tenant")
    rules.tenant_part(project, field="project")
    return _user(owner, verbs if colon else None, TENANT_FAMILIES, field="tenant")


def tokens(user: str) -> str:
    """Return a user's name as tokens, for use in subjects, URLs and file names.

    Plugins have one token or three, projects two or four, so every user's tokens are unique.
    """
    owner, colon, verbs = user.partition(":")
    name = owner.replace("/", ".")
    return f"{name}.{ONLY}.{verbs.replace(',', '-')}" if colon else name


def owners(users: Iterable[User]) -> tuple[str, ...]:
    """Return the owners of these users, each once."""
    return tuple(dict.fromkeys(user.owner for user in users))


def _user(owner: str, given: str | None, families: tuple[str, ...], *, field: str) -> User:
    if given is None:
        return User(name=owner, owner=owner, families=families)
    asked = {_SPELLINGS.get(word, word) if SEMANTIC in families else word for word in given.split(",")}
    reading = frozenset().union(*(READING[family] for family in families))
    known = frozenset().union(*(VERBS[family] for family in families))
    for word in sorted(asked - known - {READ}):
        raise ValidationError(_unknown(word, owner, known), field=field)
    named = sorted(asked - (reading if READ in asked else {READ}) - {READ})
    verbs = frozenset(named) | {_READY} | (reading if READ in asked else frozenset())
    text = ",".join([READ, *named] if READ in asked else named)
    if len(text) > _LONGEST:
        raise ValidationError(
            f"the list of verbs of {owner!r} is longer than {_LONGEST} characters: "
            f"name {READ!r} instead of the verbs that read, or split the list between two users",
            field=field,
        )
    also = {spelling for spelling, verb in _SPELLINGS.items() if verb in verbs and SEMANTIC in families}
    return User(name=f"{owner}:{text}", owner=owner, families=families, verbs=verbs | also)


_SPELLINGS: Final = {"put": "set"}
"""Alternative names of verbs for tenants' projects."""


def _unknown(word: str, owner: str, known: frozenset[str]) -> str:
    if not word:
        return f"name the verbs of {owner!r} after the colon, as in {owner}:{READ} or {owner}:get,list"
    nearest = get_close_matches(word, [READ, *sorted(known)], n=1, cutoff=0.5)
    if nearest:
        return f"{word!r} is not a verb that {owner!r} can be given; did you mean {nearest[0]!r}?"
    return (
        f"{word!r} is not a verb that {owner!r} can be given; known are {', '.join([READ, *sorted(known)])}"
    )


LISTEN: Final = "127.0.0.1:4222"
CONNECTIONS: Final = 16
"""Maximum number of simultaneous connections per user of a plugin or project."""
PENDING: Final = 33_554_432
"""Maximum number of unread bytes that the server buffers for a connection before it closes it.

This is twice what the service queues for one plugin, so a burst that the service would accept is not cut off.
"""
PENDING_UNCOUNTED: Final = 16_777_216
"""The same limit where the server cannot count connections per user, so that one user may have many."""
WRITE_DEADLINE: Final = "10s"
"""Time after which the server closes a connection that accepts no data."""

_WIDTH: Final = 110


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """The TLS settings of the server.

    Args:
        cert: The file with its certificate and any intermediate certificates.
        key: The file with the key of its certificate.
        ca: The file with the certificate of the authority, which clients trust.
        verify: Whether clients must present a certificate from that authority.
        first: Whether connections start with TLS, before the server sends anything.
    """

    cert: str
    key: str
    ca: str | None = None
    verify: bool = False
    first: bool = False

    def block(self) -> dict[str, Any]:
        """Return the `tls` block of the server's configuration."""
        block: dict[str, Any] = {"cert_file": self.cert, "key_file": self.key}
        if self.ca is not None:
            block["ca_file"] = self.ca
        if self.verify:
            block["verify"] = True
        if self.first:
            block["handshake_first"] = True
        return block


def limits(connections: int | None) -> dict[str, Any]:
    """Return the limits of a connection, and the total number of connections if one is given."""
    total = {} if connections is None else {"max_connections": connections}
    return {
        **total,
        "max_payload": 1_048_576,
        "max_pending": PENDING if connections is None else PENDING_UNCOUNTED,
        "write_deadline": WRITE_DEADLINE,
        "max_control_line": 4_096,
        "max_subscriptions": 1_000,
    }


def written(settings: Mapping[str, Any]) -> str:
    """Return settings as text, one after the other."""
    return "".join(f"{name}: {_shown(value)}\n" for name, value in settings.items())


def _shown(value: Any, indent: str = "") -> str:
    """Return a value in the configuration's syntax, on one line if that is short enough."""
    if isinstance(value, str | int):
        return json.dumps(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    deeper = f"{indent}  "
    members = (
        [f"{name}: {_shown(member, deeper)}" for name, member in value.items()]
        if isinstance(value, dict)
        else [_shown(member, deeper) for member in value]
    )
    line = f"{opening} {', '.join(members)} {closing}"
    if "\n" not in line and len(indent) + len(line) < _WIDTH:
        return line
    return "\n".join([opening, *(f"{deeper}{member}" for member in members), f"{indent}{closing}"])


Mode: TypeAlias = Literal["accounts", "permissions"]

PREFIXES: Final = ("db", "rosey.db")
SERVICE: Final = SERVICE_INBOX.removeprefix("_INBOX.")
"""The name of the service's user and account. The capitals distinguish it from every plugin."""

_MICRO: Final = "$SRV.>"
_THRESHOLD: Final = "30s"
"""Time limit for a reply."""
_INSTANCES: Final = 16
"""Number of service instances to allow for where the server limits all connections together."""
_HEADING: Final = "# Made by `holdfast nats config` in the mode {mode}. It needs nats-server 2.14 or newer.\n"
_LOCAL: Final = (
    "# Only this machine can connect. For others give --listen, and encrypt with --tls-cert and --tls-key.\n"
)


class Permissions:
    """The users on the bus and their rights, validated.

    Args:
        plugins: Users of plugins: the plugin's name, optionally with a colon and the permitted verbs.
        tenants: Users of projects, as `tenant/project`, with or without verbs.
        prefixes: Prefixes of the service's subjects; events use the first.
        mode: Accounts, or permissions within one account.
        trusted: Plugins that may act for any other by naming it in the payload. In the mode permissions the
            service cannot tell which of them asks, so they also choose where the reply goes.
        own_connection: Plugins that each get their own connection of the service, by a setting of the same
            name. All other plugins, and the projects, are assigned link numbers in turn; the service serves
            each link over one of several connections.
        connections: Maximum number of simultaneous connections per user. In the mode permissions the server
            cannot count them by user, so the limit applies to the sum.
        listen: The server's address, as `host:port`.
        tls: Its TLS settings; None leaves connections unencrypted.

    Raises:
        InvalidPluginName: A plugin's name breaks its rule.
        ValidationError: The name of a tenant, a project or a prefix breaks its rule, two of them cannot be
            told apart, or a verb is unknown.
    """

    def __init__(
        self,
        plugins: Iterable[str] = (),
        tenants: Iterable[str] = (),
        *,
        prefixes: Iterable[str] = PREFIXES,
        mode: Mode = "accounts",
        trusted: Iterable[str] = (),
        own_connection: Iterable[str] = (),
        connections: int = CONNECTIONS,
        listen: str = LISTEN,
        tls: Tls | None = None,
    ) -> None:
        of_plugins, of_tenants = [*map(plugin_user, plugins)], [*map(tenant_user, tenants)]
        self._users = {user.name: user for user in (*of_plugins, *of_tenants)}
        self.plugins = owners(of_plugins)
        self.tenants = owners(of_tenants)
        self.prefixes = _apart(prefixes)
        self.mode = mode
        self.trusted = tuple(dict.fromkeys(trusted))
        self.own_connection = tuple(dict.fromkeys(own_connection))
        self.listen = listen
        self.tls = tls
        self._connections = rules.positive(connections, field="connections", most=65_536)
        if not self.plugins and not self.tenants:
            raise ValidationError("name at least one plugin or one tenant's project", field="plugin")
        for name in self.trusted:
            if name not in self._users or name not in self.plugins:
                raise ValidationError(
                    f"{name!r} is trusted, but is not one of the plugins with all verbs", field="trusted"
                )
        for name in self.own_connection:
            if name not in self.plugins:
                raise ValidationError(
                    f"{name!r} has its own connection, but is not one of the plugins",
                    field="own_connection",
                )
        if mode == "permissions":
            self._keep_inboxes_apart()
        linked = [user for user in (*self.plugins, *self.tenants) if user not in self.own_connection]
        self.links = min(len(linked), MOST_LINKS)
        own = (own_subjects(self.prefixes, plugin) for plugin in self.own_connection)
        others = (link_subjects(self.prefixes, user, at % MOST_LINKS) for at, user in enumerate(linked))
        self._elsewhere = {subject: where for one in (*own, *others) for subject, where in one.items()}

    @property
    def users(self) -> tuple[str, ...]:
        """Every user that needs credentials: the service, the operators, the plugins and the projects."""
        return (SERVICE, OPERATOR, *self._users)

    @property
    def named(self) -> tuple[str, ...]:
        """The users of plugins and projects."""
        return tuple(self._users)

    def requests(self, user: str) -> list[str]:
        """Return the subjects to which a user may send requests."""
        if user == OPERATOR:
            return [*(f"{prefix}.admin.>" for prefix in self.prefixes), _MICRO]
        if user == SERVICE:
            return []
        who = self._users[user]
        payload = (f"{prefix}.kv.*" for prefix in self.prefixes if user in self.trusted)
        return [
            *(
                f"{prefix}.{family}.{tokens(who.owner)}.{verb}"
                for prefix in self.prefixes
                for family in who.families
                for verb in ([">"] if who.verbs is None else who.verbs_of(family))
            ),
            *payload,
        ]

    def events(self, user: str) -> list[str]:
        """Return the subjects on which a user receives events."""
        first = f"{self.prefixes[0]}.event"
        if user == OPERATOR:
            return [f"{first}.service.>"]
        who = self._users[user]
        return [f"{first}.{family}.{tokens(who.owner)}.>" for family in who.told]

    def where(self, subject: str) -> str:
        """Return the subject to which the server maps a request, so that only one connection receives it."""
        parts = subject.split(".")
        for size in range(len(parts), 0, -1):
            stem = ".".join(parts[:size])
            if (moved := self._elsewhere.get(f"{stem}.>")) is not None:
                return moved.removesuffix(".>") + subject[len(stem) :]
        return subject

    def configuration(self, credentials: Mapping[str, Credentials]) -> str:
        """Return the text of the server's configuration, for users with these credentials."""
        entries = {user: credentials[user].entry() for user in self.users}
        accounts = self._several(entries) if self.mode == "accounts" else self._one(entries)
        settings = {
            "listen": self.listen,
            **({} if self.tls is None else {"tls": self.tls.block()}),
            **limits(None if self.mode == "accounts" else self._together),
            "accounts": {json.dumps(name): account for name, account in accounts.items()},
        }
        heading = _HEADING.format(mode=self.mode) + (_LOCAL if self.listen == LISTEN else "")
        return heading + written(settings)

    @property
    def _together(self) -> int:
        """The maximum number of connections if the server cannot count them by user."""
        served = len(self.plugins) + len(self.tenants)
        return self._connections * (len(self._users) + 1) + _INSTANCES * (served + 1)

    def _several(self, entries: Mapping[str, dict[str, str]]) -> dict[str, Any]:
        allowed = {
            "publish": {"allow": [*self._told, f"{SERVICE_INBOX}.>"]},
            "subscribe": {"allow": [*self._served, f"{SERVICE_INBOX}.>"]},
            "allow_responses": {"max": 1, "expires": _THRESHOLD},
        }
        service = {
            "users": [{**entries[SERVICE], "permissions": allowed}],
            "exports": self._exports(),
            **_mapped(self._answer_about_links),
        }
        others = {
            user: {
                "users": [entries[user] | self._refusals(user)],
                "limits": {"max_connections": self._connections},
                "imports": self._imports(user),
            }
            for user in self.users[1:]
        }
        return {SERVICE: service, **others}

    def _refusals(self, user: str) -> dict[str, Any]:
        """Return permissions that make the server report an error for verbs that a restricted user lacks."""
        if user == OPERATOR or self._users[user].verbs is None:
            return {}
        asks = [*self.requests(user), *(f"{prefix}.ready" for prefix in self.prefixes)]
        return {"permissions": {"publish": {"allow": asks}}}

    def _one(self, entries: Mapping[str, dict[str, str]]) -> dict[str, Any]:
        # Neither everything nor allow_responses: either would let a forged reply subject through.
        allowed = {SERVICE: (["_INBOX.*.>", *self._told], [*self._served, f"{SERVICE_INBOX}.>"])}
        for user in self.users[1:]:
            # The server checks a subject only after mapping it to another.
            allowed[user] = (self._asked(user), [f"_INBOX.{tokens(user)}.>", *self.events(user)])
        users = [
            {**entries[user], "permissions": {"publish": {"allow": says}, "subscribe": {"allow": hears}}}
            for user, (says, hears) in allowed.items()
        ]
        return {SERVICE: {"users": users, **_mapped(self._elsewhere | self._answer_about_links)}}

    @property
    def _answer_about_links(self) -> dict[str, str]:
        """The mapping that makes the server answer the service's question about links by itself."""
        told = f"{LINKS_TOLD}.{self.links}"
        return {links_question(self.prefixes[0]): told} if self.links else {}

    def _asked(self, user: str) -> list[str]:
        """Return the subjects to which the server maps a user's requests."""
        return [self.where(subject) for subject in self.requests(user)]

    @property
    def _told(self) -> list[str]:
        """The subjects to which the service may publish on its own."""
        return [f"{self.prefixes[0]}.event.>", *self._answer_about_links.values()]

    @property
    def _served(self) -> list[str]:
        """The subjects that the service may subscribe to, only in its queue group."""
        common = (f"{prefix}.{pattern}" for prefix in self.prefixes for pattern in GRANTED)
        own = (one for plugin in self.own_connection for one in own_subjects(self.prefixes, plugin).values())
        links = (f"{prefix}.{LINK}.*.>" for prefix in self.prefixes if self.links)
        return [*(f"{subject} {QUEUE}" for subject in (*common, *own, *links)), _MICRO]

    def _exports(self) -> list[dict[str, Any]]:
        """Return the exports, limited by a token that names the account, or else by a list of accounts."""
        families = OF_PLUGINS if self.plugins else ()
        links = (f"{prefix}.{LINK}.*" for prefix in self.prefixes)
        asked = [_by_token("service", f"{link}.{family}.*.>") for link in links for family in families]
        if self.own_connection:
            moved = own_subjects(self.prefixes, "*").values()
            asked += [_by_token("service", subject) for subject in moved]
        if self.trusted:
            speakers = list(self.trusted)
            asked += [{"service": f"{prefix}.kv.*", "accounts": speakers} for prefix in self.prefixes]
        told = [_by_token("stream", f"{self.prefixes[0]}.event.{family}.*.>") for family in families]
        listed = [OPERATOR, *(user.name for user in self._users.values() if self._is_listed(user))]
        asked += self._listed("service", {user: self._asked(user) for user in listed})
        told += self._listed("stream", {user: self.events(user) for user in listed})
        for export in asked:
            export["response_threshold"] = _THRESHOLD
            if export["service"] == _MICRO:
                export["response_type"] = "stream"  # every instance answers
        return [*asked, *told]

    def _is_listed(self, user: User) -> bool:
        """Return whether exports must list the user's account, because no token of the subject names it."""
        return user.verbs is not None or user.owner in self.tenants

    def _listed(self, kind: str, subjects: Mapping[str, Iterable[str]]) -> list[dict[str, Any]]:
        """Return exports of subjects, each once, to the accounts that need them.

        An export of a single subject takes precedence over a wildcard, so it lists the unrestricted user too.
        """
        accounts: dict[str, dict[str, None]] = {}
        for user, wanted in subjects.items():
            whole = user.partition(":")[0]
            for subject in wanted:
                accounts.setdefault(subject, {whole: None} if whole in self._users else {})[user] = None
        return [{kind: subject, "accounts": [*users]} for subject, users in accounts.items()]

    def _imports(self, user: str) -> list[dict[str, Any]]:
        asks = [self._import(subject) for subject in self.requests(user)]
        asks += [
            self._import(ready_subject(prefix, f"_INBOX.{tokens(user)}")[1]) | {"to": f"{prefix}.ready"}
            for prefix in self.prefixes
        ]
        hears = [{"stream": {"account": SERVICE, "subject": subject}} for subject in self.events(user)]
        return [*asks, *hears]

    def _import(self, subject: str) -> dict[str, Any]:
        """Return the import that lets an account send to a subject, wherever the server maps it."""
        where = self.where(subject)
        imported = {"service": {"account": SERVICE, "subject": where}}
        return imported if where == subject else imported | {"to": subject}

    def _keep_inboxes_apart(self) -> None:
        """Reject a plugin with a tenant's name: its inbox would include those of the tenant's projects."""
        for tenant in self.tenants:
            name = tenant.partition("/")[0]
            if name in self.plugins:
                raise ValidationError(
                    f"{name!r} is both a plugin and a tenant: in the mode permissions the plugin could read "
                    "the replies to the tenant's projects; rename one, or use the mode accounts",
                    field="tenant",
                )


def _apart(prefixes: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes, checked so that none is the start of another and every subject is unambiguous."""
    checked = tuple(dict.fromkeys(prefixes))
    if not checked:
        raise ValidationError("name at least one prefix", field="prefix")
    for prefix in checked:
        for token in prefix.split("."):
            rules.tenant_part(token, field="prefix")
        for other in checked:
            if other.startswith(f"{prefix}."):
                raise ValidationError(
                    f"the prefix {other!r} lies within {prefix!r}: their subjects can't be told apart",
                    field="prefix",
                )
    return checked


def _by_token(kind: str, subject: str) -> dict[str, Any]:
    """Return an export that lets each account import only subjects with its own name at the last `*`."""
    parts = subject.split(".")
    return {kind: subject, "account_token_position": len(parts) - parts[::-1].index("*")}


def _mapped(moved: Mapping[str, str]) -> dict[str, Any]:
    """Return the `mappings` block that replaces subjects, or nothing if there are none."""
    return {"mappings": {json.dumps(this): that for this, that in moved.items()}} if moved else {}
