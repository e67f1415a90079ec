"""The configuration of a nats-server that isolates the users on the bus from each other.

    accounts        one account for each user of a plugin or a tenant's project. Subjects cross between
                    accounts only where the service exports and the user imports them, and the server replaces
                    every reply subject with one of its own.
    permissions     one account for all. Each user may publish to its own subjects and listen to its own inbox
                    and events. The server does not check reply subjects, so the service has to.

Law: names and credentials go in, text comes out; nothing here reads files, writes files or connects.
Exports with wildcards must not overlap, because the server would pick an arbitrary one to check an import. An
export of exactly the imported subject takes precedence, so exports of single verbs may lie within others.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from holdfast import rules
from holdfast.edges.nats import server_settings
from holdfast.edges.nats.credentials import Credentials
from holdfast.edges.nats.grants import owners, plugin_user, tenant_user, tokens
from holdfast.edges.nats.server_settings import CONNECTIONS, LISTEN
from holdfast.errors import ValidationError
from holdfast.families import OF_PLUGINS
from holdfast.wire.subjects import (
    GRANTED,
    LINK,
    LINKS_TOLD,
    MOST_LINKS,
    OPERATOR,
    QUEUE,
    SERVICE_INBOX,
    link_subjects,
    links_question,
    own_subjects,
    ready_subject,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.edges.nats.grants import User
    from holdfast.edges.nats.server_settings import Tls

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
            **server_settings.limits(None if self.mode == "accounts" else self._together),
            "accounts": {json.dumps(name): account for name, account in accounts.items()},
        }
        heading = _HEADING.format(mode=self.mode) + (_LOCAL if self.listen == LISTEN else "")
        return heading + server_settings.written(settings)

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
