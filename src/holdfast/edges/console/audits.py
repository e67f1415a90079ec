"""The audit: its records, filtered by key, writer, purpose, operation and time.

Law: as in `holdfast.edges.console.pages`. Records hold hashes of values, never values. Verifying is the verb
`audit_verify`, which the page calls part by part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ValidationError

if TYPE_CHECKING:
    from holdfast.edges.console.visits import Visit

MOST_RECORDS: Final = 100
FILTERS: Final = {
    "prefix": "prefix",
    "writer": "last_writer",
    "purpose": "purpose",
    "op": "op",
    "request_id": "request_id",
    "since": "since",
    "until": "until",
}
"""The parameters of the page, and the fields of the verb that they are."""


async def audit(visit: Visit) -> dict[str, Any]:
    """Return a page of the records of a namespace, newest first."""
    names = (await visit.operators("audits"))["namespaces"]
    chosen = visit.query.get("namespace") or (names[0] if names else None)
    filters = {name: visit.query[name] for name in FILTERS if visit.query.get(name)}
    shown = {"namespaces": names, "namespace": chosen, "filters": filters, "after": _after(visit)}
    if chosen is None:
        return shown | {"records": [], "next": None}
    fields = {FILTERS[name]: said for name, said in filters.items()}
    page = await visit.operators(
        "audit", namespace=chosen, reverse=True, after=_after(visit), limit=MOST_RECORDS, **fields
    )
    return shown | {"records": page["records"], "next": page["next"]}


def _after(visit: Visit) -> int:
    said = visit.query.get("after", "0")
    if not (said.isascii() and said.isdecimal() and len(said) < 20):
        raise ValidationError("after must be the number of a record", field="after")
    return int(said)
