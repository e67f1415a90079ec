"""`holdfast token`: make, list and revoke the tokens that let callers in over HTTP.

The secret of a token is printed once, on stdout alone, and kept nowhere.
"""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

import holdfast
from holdfast.edges.calls import require_verbs
from holdfast.edges.cli.confirmation import Yes, destroys, require_yes
from holdfast.edges.cli.options import MaybeSeconds
from holdfast.edges.cli.output import document, line, rows, say, shown_time
from holdfast.edges.cli.target import HERE, STORE, Place, Target
from holdfast.operators.tokens import Token

_COLUMNS: Final = ("id", "for", "verbs", "made", "expires")


async def create(
    *,
    verbs: str | None = None,
    expires: MaybeSeconds = None,
    operator: bool = False,
    target: Target = HERE,
) -> None:
    """Make a token for a plugin, a tenant's project, or operators, and print it. It is shown only now.

    Parameters
    ----------
    verbs
        The only verbs that it allows, with commas between them, such as get,list,watch; all if not given.
    expires
        Expire the token after this long: seconds, or 30s, 12h, 30d. If not given, it does not expire.
    operator
        Make it a token for operators, who may do everything, instead of one for a plugin or project.
    """
    named = None if verbs is None else [verb.strip() for verb in verbs.split(",")]
    if named is not None:
        require_verbs(named)
    plugin, tenant, project = (None, None, None) if operator else target.chosen
    if not (operator or plugin or (tenant and project)):
        raise holdfast.MissingField(
            "whom is the token for? Give --plugin NAME, --tenant and --project, or --operator", field="plugin"
        )
    async with target.open() as store:
        made = await store.tokens().create(
            plugin=plugin, tenant=tenant, project=project, operator=operator, verbs=named, ttl=expires
        )
    if target.json:
        document(made)
        return
    line(made.token)
    say(f"{_about(made.about)}; this is the only time that it is shown")


async def list_tokens(*, place: Place = STORE) -> None:
    """List the tokens that are valid, without their secrets."""
    async with place.look() as store:
        tokens = await store.tokens().list()
    if place.json:
        for token in tokens:
            document(token)
        return
    rows(_COLUMNS, map(_cells, tokens))
    if not tokens:
        say("there are no tokens")


@destroys
async def revoke(
    *ids: Annotated[str, Parameter(help="The token's id.")], yes: Yes = False, place: Place = STORE
) -> None:
    """Revoke tokens by their ids. Every instance of a service refuses them within a second.

    A token that does not exist is no error.
    """
    if not ids:
        raise holdfast.MissingField(
            "which tokens? Give their ids, as holdfast token list shows them", field="id"
        )
    require_yes(f"callers with the tokens {', '.join(ids)} are let in no longer", yes=yes)
    async with place.open() as store:
        for name in ids:
            revoked = await store.tokens().revoke(name)
            if place.json:
                document({"id": name, "revoked": revoked})
            else:
                line(f"{name} {'revoked' if revoked else 'not there'}")


def _about(token: Token) -> str:
    until = "does not expire" if token.expires_at is None else f"expires {shown_time(token.expires_at)}"
    return f"token {token.id} is for {token.owner}, allows {_verbs(token)} and {until}"


def _cells(token: Token) -> tuple[str | None, ...]:
    until = None if token.expires_at is None else shown_time(token.expires_at)
    return (token.id, token.owner, _verbs(token), shown_time(token.created_at), until)


def _verbs(token: Token) -> str:
    return "all verbs" if token.verbs is None else ",".join(token.verbs)
