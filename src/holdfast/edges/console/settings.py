"""The settings in force, and where each came from.

Law: as in `holdfast.edges.console.pages`. Credentials are masked before they reach this module. Only
operators see settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import PermissionDenied

if TYPE_CHECKING:
    from holdfast.edges.console.visits import Visit


async def settings(visit: Visit) -> dict[str, Any]:
    """Return every setting with its value, its source and what it is for.

    The filter is a part of a name or of its help; `given=1` leaves out what has its default.
    """
    if not visit.allows("admin", "", "stats"):
        raise PermissionDenied("only operators see the settings of the service")
    given = visit.query.get("given") == "1"
    fitting = [
        one
        for one in visit.parts.settings
        if visit.fits(one["setting"], one["help"]) and not (given and one["source"] == "default")
    ]
    return {"settings": fitting, "filter": visit.filter, "given": given}
