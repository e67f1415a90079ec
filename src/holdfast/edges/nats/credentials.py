"""The credentials of a user of a nats-server, as passwords or as nkeys.

Law: nothing here reads files, writes files or connects.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast import extras
from holdfast.edges.nats.grants import tokens
from holdfast.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

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


def new_credentials(
    user: str, kind: Kind, *, random: Callable[[int], bytes] = secrets.token_bytes
) -> Credentials:
    """Generate credentials."""
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
