"""The generated configuration: every one is accepted by the server, and none can be widened by an import.

What users can and can't do with it is tried beside this file; here is what it must look like.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Final

import nkeys  # type: ignore[import-untyped]
import pytest

from holdfast.edges.nats.server import find
from holdfast.edges.nats.server_config import (
    SERVICE,
    Kind,
    Mode,
    Permissions,
    credentials_of,
    new_credentials,
)
from holdfast.edges.nats.service import ServiceSubjects
from holdfast.errors import InvalidPluginName, ValidationError
from holdfast.wire.subjects import OPERATOR, QUEUE

if TYPE_CHECKING:
    from pathlib import Path

ODD: Final = (
    "include",
    "true",
    "null",
    "123",
    "1k",
    "-5",
    "2h",
    "0x1",
    "1e5",
    "-",
    "_",
    "accounts",
    "a" * 100,
)
"""Names that mean something else where a configuration does not quote them."""
TENANTS: Final = ("acme/web", "acme/app", "globex/web")


def text_of(permissions: Permissions, kind: Kind = "nkeys") -> str:
    """A configuration with fresh credentials."""
    return permissions.configuration({user: new_credentials(user, kind) for user in permissions.users})


def load(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Have the server read a configuration."""
    path = folder / "nats-server.conf"
    path.write_text(text)
    command = [str(find()), "-t", "-c", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("mode", ["accounts", "permissions"])
@pytest.mark.parametrize("kind", ["nkeys", "passwords"])
@pytest.mark.parametrize("prefixes", [("db", "rosey.db"), ("a",), ("a.b.c", "d-1", "e_2.f")])
@pytest.mark.parametrize(
    "users",
    [(("trivia", "quote-db"), TENANTS, ("trivia",)), (ODD, (), ODD), ((), TENANTS, ())],
    ids=["both", "plugins", "tenants"],
)
def test_every_configuration_is_accepted(
    mode: Mode, kind: Kind, prefixes: tuple[str, ...], users: tuple[tuple[str, ...], ...], tmp_path: Path
) -> None:
    """The server loads what is generated, whatever the names, prefixes and credentials."""
    plugins, tenants, trusted = users
    permissions = Permissions(
        plugins, tenants, prefixes=prefixes, mode=mode, trusted=trusted, own_connection=trusted
    )
    loaded = load(text_of(permissions, kind), tmp_path)
    assert (loaded.returncode, loaded.stdout) == (0, ""), loaded.stderr


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("db.link.0.kv.trivia.>", "db.link.1.kv.quote-db.>"),
        ("db.link.0.kv.trivia.>", "db.link.0.kv.quote-db.>"),
        ("db.link.0.kv.trivia.>", "db.link.0.kv.*.>"),
        ("db.link.0.kv.trivia.>", "db.link.>"),
        ("db.link.0.kv.trivia.>", "db.kv.trivia.>"),
        ("rosey.db.link.0.kv.trivia.>", "rosey.db.link.1.kv.quote-db.>"),
        ("db.link.0.table.trivia.>", "db.link.1.table.quote-db.>"),
        ("db.event.kv.trivia.>", "db.event.kv.quote-db.>"),
        ("db.event.table.trivia.>", "db.event.table.quote-db.>"),
        ("db.link.0.kv.trivia.>", "db.kv.*"),
        ("db.link.0.kv.trivia.>", "db.admin.>"),
        ("db.link.0.kv.trivia.>", "$SRV.>"),
        ("db.link.0.kv.trivia.>", "db.link.2.semantic.acme.web.>"),
        ("db.link.2.semantic.acme.web.>", "db.link.3.semantic.acme.app.>"),
        ("db.link.2.semantic.acme.web.>", "db.link.2.semantic.acme.*.>"),
        ("db.link.2.semantic.acme.web.>", "db.link.1.kv.quote-db.>"),
        ("db.event.semantic.acme.web.>", "db.event.semantic.acme.app.>"),
        ("db.event.semantic.acme.web.>", "db.event.service.>"),
    ],
)
def test_importing_the_subject_of_another_account_is_refused(mine: str, theirs: str, tmp_path: Path) -> None:
    """An account that asks for another's subject keeps the server from loading the file."""
    permissions = Permissions(("trivia", "quote-db"), TENANTS, trusted=("quote-db",))
    text = text_of(permissions)
    wanted = f'account: "{SERVICE}", subject: "{mine}"'
    assert text.count(wanted) == 1
    refused = load(text.replace(wanted, f'account: "{SERVICE}", subject: "{theirs}"'), tmp_path)
    assert refused.returncode != 0
    assert "not authorized" in refused.stderr


def test_importing_the_connection_of_another_plugin_is_refused(tmp_path: Path) -> None:
    """Where a plugin's requests are sent instead is as much its own as where it sends them."""
    text = text_of(Permissions(("trivia", "quote-db"), own_connection=("trivia",)))
    mine = 'subject: "db.own.kv.trivia.>"'
    assert text.count(mine) == 1
    refused = load(text.replace(mine, 'subject: "db.own.kv.quote-db.>"'), tmp_path)
    assert refused.returncode != 0
    assert "not authorized" in refused.stderr


def test_each_account_has_its_own_subjects_only() -> None:
    """Each plugin's account holds its own subjects of every prefix and family, and nothing else."""
    text = text_of(Permissions(("trivia", "quote-db"), ("acme/web",)))
    account = " ".join(text[text.index('"trivia": {') : text.index('"quote-db": {')].split())
    imported = re.findall(
        r'(service|stream): \{ account: "HOLDFAST", subject: "(\S+)" \},? (?:to: "(\S+)")?', account
    )
    assert imported == [
        ("service", "db.link.0.kv.trivia.>", "db.kv.trivia.>"),
        ("service", "db.link.0.table.trivia.>", "db.table.trivia.>"),
        ("service", "db.link.0.blob.trivia.>", "db.blob.trivia.>"),
        ("service", "rosey.db.link.0.kv.trivia.>", "rosey.db.kv.trivia.>"),
        ("service", "rosey.db.link.0.table.trivia.>", "rosey.db.table.trivia.>"),
        ("service", "rosey.db.link.0.blob.trivia.>", "rosey.db.blob.trivia.>"),
        ("service", "db.link.0.kv.trivia.ready", "db.ready"),
        ("service", "rosey.db.link.0.kv.trivia.ready", "rosey.db.ready"),
        ("stream", "db.event.kv.trivia.>", ""),
        ("stream", "db.event.table.trivia.>", ""),
        ("stream", "db.event.blob.trivia.>", ""),
    ]
    assert len(imported) == account.count("subject:")


@pytest.mark.parametrize("mode", ["accounts", "permissions"])
def test_the_service_may_subscribe_to_what_it_uses_only(mode: Mode) -> None:
    """What the file grants the service is what the service subscribes to in that mode, in its queue group."""
    permissions = Permissions(("trivia",), TENANTS, mode=mode)
    listening = ServiceSubjects(permissions.prefixes, plugin=None, payload_dialect=True, anybody=False)
    patterns = [
        one for prefix in listening.prefixes for one in (*listening.patterns(prefix), f"{prefix}.link.*.>")
    ]
    heard = [f"{one} {QUEUE}" for one in patterns]
    text = text_of(permissions)
    assert all(f'"{one}"' in text for one in heard)
    assert text.count(f' {QUEUE}"') == len(heard)


@pytest.mark.parametrize("mode", ["accounts", "permissions"])
def test_only_operators_have_the_operators_verbs(mode: Mode) -> None:
    """The operators' subjects are granted to the operator alone, who is always there."""
    permissions = Permissions(("trivia",), TENANTS, mode=mode, trusted=("trivia",))
    assert OPERATOR in permissions.users
    for user in permissions.users:
        granted = [subject for subject in permissions.requests(user) if ".admin." in subject]
        assert bool(granted) == (user == OPERATOR)


def test_only_a_trusted_plugin_may_use_the_payload_dialect() -> None:
    """Only a trusted plugin may ask at subjects that do not name it."""
    permissions = Permissions(("trivia", "bot"), TENANTS, trusted=("bot",))
    assert {user for user in permissions.users if "db.kv.*" in permissions.requests(user)} == {"bot"}


def test_repeated_names_make_one_user() -> None:
    """A name that is repeated makes no second user."""
    permissions = Permissions(("a", "a"), ("t/p", "t/p"), prefixes=("db", "db"), trusted=("a", "a"))
    assert permissions.users == (SERVICE, OPERATOR, "a", "t/p")
    assert permissions.prefixes == ("db",)


@pytest.mark.parametrize("name", ["", "Trivia", "a.b", "a b", "*", ">", "a\n", "é", "a" * 101])
def test_a_bad_plugin_is_refused(name: str) -> None:
    """No plugin's name can be anything else in a subject or in the file."""
    with pytest.raises(InvalidPluginName):
        Permissions((name,))


@pytest.mark.parametrize(
    "name", ["", "acme", "/web", "acme/", "a/b/c", "Acme/web", "a.b/c", "acme/*", "a/b\n"]
)
def test_a_bad_tenant_is_refused(name: str) -> None:
    """A tenant's project is two names that are legal each."""
    with pytest.raises(ValidationError, match=r"tenant|project"):
        Permissions((), (name,))


@pytest.mark.parametrize(
    "prefixes",
    [(), ("",), ("a.",), (".a",), ("$SRV",), ("_INBOX",), ("a.*",), ("a b",), ("db", "db.kv"), ("x.db", "x")],
)
def test_bad_prefixes_are_refused(prefixes: tuple[str, ...]) -> None:
    """A prefix is made of legal tokens, and no other lies within it."""
    with pytest.raises(ValidationError, match="prefix"):
        Permissions(("trivia",), prefixes=prefixes)


def test_a_configuration_without_users_is_refused() -> None:
    """A configuration for nobody is not asked for on purpose."""
    with pytest.raises(ValidationError, match="at least one plugin"):
        Permissions()


def test_only_a_plugin_can_have_a_connection_of_its_own() -> None:
    """A connection for somebody who is not on the bus is a mistake in writing."""
    with pytest.raises(ValidationError, match="'bot' has its own connection"):
        Permissions(("trivia",), own_connection=("bot",))


def test_only_a_plugin_can_be_trusted() -> None:
    """Trust for somebody who is not on the bus is a mistake in writing."""
    with pytest.raises(ValidationError, match="'bot' is trusted"):
        Permissions(("trivia",), trusted=("bot",))


def test_a_plugin_named_like_a_tenant_needs_accounts() -> None:
    """In a common account the inbox of a plugin holds those of a tenant of its name, so it is refused."""
    with pytest.raises(ValidationError, match="both a plugin and a tenant"):
        Permissions(("acme",), ("acme/web",), mode="permissions")
    assert Permissions(("acme",), ("acme/web",)).users


def test_credentials_are_made_from_randomness_alone() -> None:
    """Who knows the randomness knows the credentials, and nobody else."""
    seeded = new_credentials("trivia", "nkeys", random=bytes)
    assert seeded == new_credentials("trivia", "nkeys", random=bytes)
    assert seeded == credentials_of("trivia", seeded.secret, "nkeys")
    assert seeded.public is not None
    assert nkeys.from_seed(seeded.secret.encode()).public_key == seeded.public.encode()
    assert len({new_credentials("trivia", kind).secret for kind in _kinds() for _ in range(10)}) == 20
    assert seeded.secret not in text_of(Permissions(("trivia",)))


@pytest.mark.parametrize("secret", ["", "nonsense", "SUAAAA", "U" * 58, "é"])
def test_a_damaged_seed_is_refused(secret: str) -> None:
    """A secret that was damaged on its way is not taken for a seed."""
    with pytest.raises(ValidationError, match="not the seed"):
        credentials_of("trivia", secret, "nkeys")


def test_client_arguments_have_login_and_inbox() -> None:
    """The arguments for a client hold what to log in with, and the inbox that the user may hear."""
    password = credentials_of("acme/web", "secret", "passwords")
    assert password.options() == {"user": "acme.web", "password": "secret", "inbox_prefix": "_INBOX.acme.web"}
    seed = new_credentials("trivia", "nkeys")
    assert seed.options() == {"nkeys_seed_str": seed.secret, "inbox_prefix": "_INBOX.trivia"}


def _kinds() -> tuple[Kind, Kind]:
    return ("nkeys", "passwords")
