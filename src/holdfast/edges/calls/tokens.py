"""The operators' verbs about tokens: create, list and revoke.

Law: as in `holdfast.edges.calls.keys`. A call takes no `request_id`, because the answer to a repeated request
would have to be kept with its secret.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.edges.calls.catalogue import Verb
from holdfast.forms import NOTHING, PLUGIN, TENANT, TEXT, CallFields, Ttl, ruled
from holdfast.operators.tokens import OF_LINK
from holdfast.replies import Count
from holdfast.verbs.fields import required

if TYPE_CHECKING:
    from holdfast.store import Store

Id = Annotated[str, Meta(description="The id of the token.")]
Plugin = Annotated[str, Meta(description="The plugin that the token is for.", pattern=PLUGIN)]
Tenant = Annotated[str, Meta(description="The tenant whose project the token is for.", pattern=TENANT)]
Project = Annotated[str, Meta(description="The tenant's project.", pattern=TENANT)]
Operator = Annotated[bool, Meta(description="Whether the token is for operators, who may do everything.")]
Verbs = Annotated[
    list[str],
    Meta(description="The only verbs that the token allows; all if not given.", min_length=1, max_length=100),
]
_NO_PROJECT: Final[dict[str, Any]] = {"tenant": NOTHING, "project": NOTHING}


@ruled(
    {
        "oneOf": [
            {"required": ["plugin"], "properties": _NO_PROJECT | {"operator": {"const": False}}},
            {
                "required": ["tenant", "project"],
                "properties": {"plugin": NOTHING, "operator": {"const": False}},
            },
            {
                "required": ["operator"],
                "properties": _NO_PROJECT | {"plugin": NOTHING, "operator": {"const": True}},
            },
        ]
    }
)
class TokenCreateFields(CallFields, kw_only=True):
    """The fields of `token_create`: one of `plugin`, `tenant` with `project`, and `operator`."""

    plugin: Plugin | UnsetType = UNSET
    tenant: Tenant | UnsetType = UNSET
    project: Project | UnsetType = UNSET
    operator: Operator | UnsetType = UNSET
    verbs: Verbs | UnsetType = UNSET
    ttl: Ttl | UnsetType = UNSET


class TokenFields(CallFields, kw_only=True):
    """A call about one token."""

    id: Annotated[Id, Meta(min_length=1, max_length=rules.MAX_KEY_CHARACTERS, pattern=TEXT)]


class TokenReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """A token without its secret."""

    id: Id
    plugin: Plugin | None
    tenant: Tenant | None
    project: Project | None
    operator: Operator
    verbs: Annotated[list[str] | None, Meta(description="The verbs that it allows; `null` for all.")]
    created_at: Annotated[datetime, Meta(description="When it was made.")]
    expires_at: Annotated[datetime | None, Meta(description="When it expires; `null` if it does not.")]


class TokenCreateReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `token_create`."""

    token: Annotated[str, Meta(description="The token with its secret, which is shown only here.")]
    about: Annotated[TokenReply, Meta(description="What the token allows.")]


class TokensReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `tokens`."""

    tokens: Annotated[list[TokenReply], Meta(description="The tokens that are valid, by id.")]
    count: Count


class RevokedReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `token_revoke`."""

    revoked: Annotated[bool, Meta(description="Whether there was such a token.")]


async def _token_create(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    # late: it needs the verbs that are declared here
    from holdfast.edges.calls import require_verbs

    if isinstance(fields.get("verbs"), list):
        require_verbs(fields["verbs"])
    made = await store.tokens().create(
        plugin=fields.get("plugin"),
        tenant=fields.get("tenant"),
        project=fields.get("project"),
        operator=fields.get("operator", False),
        verbs=fields.get("verbs"),
        ttl=fields.get("ttl"),
        by=_asking(fields["principal"]),
    )
    return {"token": made.token, "about": msgspec.structs.asdict(made.about)}


def _asking(principal: str) -> str | None:
    """Return the id of the token that let a caller in; None if it was no token, or the link of a console."""
    mode, _, name = principal.partition(":")
    token = name.rpartition("#")[2]
    return token if mode == "token" and not token.startswith(OF_LINK) else None


async def _tokens(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    found = await store.tokens().list()
    return {"tokens": [msgspec.structs.asdict(token) for token in found], "count": len(found)}


async def _token_revoke(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"revoked": await store.tokens().revoke(str(required(fields, "id")))}


TOKEN_VERBS: Final = (
    Verb(
        name="token_create",
        help="Make a token that lets a caller in over HTTP.",
        fields=TokenCreateFields,
        reply=TokenCreateReply,
        answer=_token_create,
        writes=True,
    ),
    Verb(
        name="tokens",
        help="List the tokens that let callers in over HTTP.",
        fields=CallFields,
        reply=TokensReply,
        answer=_tokens,
    ),
    Verb(
        name="token_revoke",
        help="Revoke a token.",
        fields=TokenFields,
        reply=RevokedReply,
        answer=_token_revoke,
        writes=True,
        destroys=True,
    ),
)
"""The verbs about tokens."""
