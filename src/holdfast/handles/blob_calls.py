"""Calls of the verbs that write blobs: fields become a command, and its result becomes the reply's fields.

The bytes of a call are its field `data`: bytes, or base64 where a door has only text. `holdfast.wire.writes`
has the calls that blobs share with keys.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Final

from holdfast.blobs import fields as of
from holdfast.blobs.manifest import PART_BYTES
from holdfast.errors import ValidationError
from holdfast.verbs.blobs import BlobVerbs
from holdfast.verbs.fields import provenance, required, ttl_field
from holdfast.wire.writes import Write, show_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.verbs.keys import Verbs


def data_of(fields: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the bytes of a call and their checksum, which must be the one in the call, if any."""
    given = required(fields, "data")
    if isinstance(given, str):
        try:
            given = binascii.a2b_base64(given, strict_mode=True)
        except (binascii.Error, ValueError):
            raise ValidationError("data must be base64 where it is text", field="data") from None
    return of.data(given, given_checksum=fields.get("checksum"))


def _put(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    data, checksum = data_of(fields)
    command = BlobVerbs(verbs).store(
        required(fields, "key"), size=len(data), checksum=checksum, data=data, **_about(fields)
    )
    return Write(command, _shown(fields))


def _commit(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command = BlobVerbs(verbs).store(
        required(fields, "key"),
        size=required(fields, "size"),
        checksum=required(fields, "checksum"),
        upload=required(fields, "upload"),
        **_about(fields),
    )
    return Write(command, _shown(fields))


def _shown(fields: Mapping[str, Any]) -> Callable[[Any], dict[str, Any]]:
    envelope = fields.get("envelope")
    return lambda result: show_stored(result, envelope)


def _about(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "content_type": fields.get("content_type"),
        "metadata": fields.get("metadata"),
        "ttl": ttl_field(fields),
        "expected_version": fields.get("expected_version"),
        **provenance(fields),
    }


def _copy(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command = BlobVerbs(verbs).copy(
        required(fields, "source"),
        required(fields, "key"),
        ttl=ttl_field(fields),
        expected_version=fields.get("expected_version"),
        **provenance(fields),
    )
    return Write(command, _shown(fields))


def _begin(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command = BlobVerbs(verbs).begin(**provenance(fields))
    return Write(command, lambda result: {"upload": result.upload, "part_bytes": PART_BYTES})


def _put_part(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    data, checksum = data_of(fields)
    command = BlobVerbs(verbs).put_part(
        required(fields, "upload"), required(fields, "number"), data, checksum, **provenance(fields)
    )
    return Write(command, lambda result: {"checksum": checksum})


def _abort(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command = BlobVerbs(verbs).abort(required(fields, "upload"), **provenance(fields))
    return Write(command, lambda result: {})


WRITES: Final[dict[str, Callable[[Verbs, Mapping[str, Any]], Write]]] = {
    "put": _put,
    "begin": _begin,
    "put_part": _put_part,
    "commit": _commit,
    "abort": _abort,
    "copy": _copy,
}
"""The verbs that write and that only blobs have, each with the function that builds its command."""
