"""Commands on blobs and their results.

Bytes are in commands only: results and replies hold manifests. The class of a command also declares its verb;
see `holdfast.declare`. Blobs share other verbs with keys.
"""

# Annotations are not postponed: verbs are derived from them.

from functools import partial
from typing import Annotated, ClassVar, Final

import msgspec

from holdfast import rules
from holdfast.blobs import fields
from holdfast.commands import LEAST_COST, Command, KeyChange, Result, WriteCommand
from holdfast.declare import Declaration, Says, Wire, verb
from holdfast.errors import ValidationError
from holdfast.forms import NO_KEEPING, TTLS, KeepTtl, Key, KeyWriteFields, Ttl, TtlSeconds, WriteFields
from holdfast.model import KEEP
from holdfast.replies import Nothing, StoredReply

VERBS: Final[dict[str, Declaration]] = {}
"""The verbs that only blobs have, by name."""
_verb = partial(verb, among=VERBS)
_write = partial(_verb, in_order=True)


def _bytes(data: object, checksum: object) -> tuple[bytes, int, str]:
    """Return the bytes of a whole blob, their number and their checksum."""
    checked, actual = fields.data(data, checksum)
    return checked, len(checked), actual


def _part(data: object, checksum: object) -> tuple[bytes, str]:
    """Return the bytes of a part and their checksum."""
    checked, actual = fields.data(data, checksum)
    if not checked:
        raise ValidationError("a part has at least one byte", field="data")
    return checked, actual


def _lifetime(ttl: object, seconds: object, keep: object) -> tuple[int | None, bool]:
    """Return the TTL of a blob, and whether the old deadline stays."""
    lifetime = rules.one_ttl(ttl, seconds, keep)
    return (None, True) if lifetime is KEEP else (rules.ttl(lifetime), False)


def _first_ttl(ttl: object, seconds: object, keep: object) -> int | None:
    return rules.ttl(rules.one_ttl(ttl, seconds, keep))


def _source(text: object) -> str:
    try:
        return rules.key(text)
    except ValidationError as error:
        raise ValidationError(error.message, field="source") from None


def _sent_bytes(data: bytes | None) -> bytes:
    return data or b""


_UPLOAD: Final = Says(rule=fields.upload, form=fields.UploadId)
_NUMBER: Final = Says(rule=fields.part_number, form=fields.Number)
_SECONDS: Final = Wire("ttl_seconds", TtlSeconds)


class UploadChange(WriteCommand, frozen=True, kw_only=True, gc=False):
    """A change of an upload, which no reader sees."""


@_write("begin", help="Begin the upload of a blob.", reply=fields.BegunReply, options=WriteFields)
class BeginUpload(UploadChange, frozen=True, kw_only=True, gc=False):
    """Begin an upload."""


@_write("put_part", help="Send a part of an upload.", reply=fields.PartStoredReply, options=WriteFields)
class PutPart(UploadChange, frozen=True, kw_only=True, gc=False):
    """Store a part of an upload. A part that has arrived before is left as it is."""

    bulky: ClassVar[bool] = True

    upload: Annotated[int, _UPLOAD]
    number: Annotated[int, Says(rule=fields.part_number, form=fields.PutNumber)]
    checksum: Annotated[str, Says(form=fields.GivenChecksum)]
    data: Annotated[
        bytes,
        Says(
            rule=_part,
            form=fields.PartData,
            takes=("checksum",),
            fills=("checksum",),
            needed=True,
        ),
    ]

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return len(self.data) + LEAST_COST


@_write("abort", help="Give up an upload.", reply=Nothing, options=WriteFields, destroys=True)
class AbortUpload(UploadChange, frozen=True, kw_only=True, gc=False):
    """Give up an upload. A finished one is left as it is."""

    upload: Annotated[int, _UPLOAD]

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


@_write(
    "commit",
    help="Put a blob whose parts have been sent.",
    reply=StoredReply,
    options=KeyWriteFields,
    without={"data": None},
    instead={
        "upload": Says(rule=fields.upload, form=fields.UploadId, required=True),
        "size": Says(rule=fields.size, form=fields.Size),
        "checksum": Says(rule=fields.checksum, form=fields.WholeChecksum),
    },
    rules=TTLS,
)
@_write(
    "put",
    help="Put a blob of at most 262,144 bytes.",
    reply=StoredReply,
    options=KeyWriteFields,
    rules=TTLS,
    schema="PutBlobFields",
)
class StoreBlob(KeyChange, frozen=True, kw_only=True, gc=False):
    """Store a blob, replacing any existing one.

    Its bytes are in the parts of an upload or, if there is at most one part, in `data`. `metadata` is JSON
    text.
    """

    bulky: ClassVar[bool] = True

    upload: int | None = None
    data: Annotated[
        bytes | None,
        Says(
            rule=_bytes,
            form=fields.Data,
            takes=("checksum",),
            fills=("size", "checksum"),
            required=True,
            needed=True,
            sent=_sent_bytes,
        ),
    ] = None
    size: int
    checksum: Annotated[str, Says(form=fields.GivenChecksum)]
    content_type: Annotated[str, Says(rule=fields.content_type, form=fields.ContentType, otherwise=None)]
    metadata: Annotated[
        str,
        Says(rule=fields.metadata, form=fields.Metadata, otherwise=None, sent=msgspec.json.decode),
    ]
    ttl: Annotated[
        int | None, Says(rule=_lifetime, form=Ttl, takes=(_SECONDS, "keep_ttl"), fills=("keep_ttl",))
    ] = None
    keep_ttl: Annotated[bool, Says(form=KeepTtl, flag=True)] = False

    @property
    def declared(self) -> Declaration:
        """The verb of which this is a call: the bytes come with it, or they have been sent before."""
        return VERBS["put" if self.upload is None else "commit"]

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return len(self.data or b"") + len(self.metadata) + LEAST_COST

    @property
    def asked(self) -> "StoreBlob":
        """This command as its request id is remembered: the same bytes may arrive in another upload."""
        return msgspec.structs.replace(self, origin=self.origin.asked, upload=None, data=None)


@_write("copy", help="Copy a blob.", reply=StoredReply, options=KeyWriteFields, rules=NO_KEEPING)
class CopyBlob(KeyChange, frozen=True, kw_only=True, gc=False):
    """Store the bytes of another blob under this key, with its content type and metadata."""

    source: Annotated[str, Says(rule=_source, form=fields.Source)]
    ttl: Annotated[
        int | None, Says(rule=_first_ttl, form=Ttl, takes=(_SECONDS, Wire("keep_ttl", KeepTtl)))
    ] = None


@_verb(
    "get",
    help="Return bytes of a blob, at most 262,144 at a time.",
    reply=fields.GetBlobReply,
    schema="GetBlobFields",
)
class GetBlob(Command, frozen=True, kw_only=True, gc=False):
    """Read bytes of a blob."""

    key: Annotated[str, Says(rule="key", form=Key)]
    start: Annotated[int, Says(rule=partial(fields.offset, field="start"), form=fields.Start)] = 0
    end: Annotated[int | None, Says(rule=partial(fields.offset, field="end"), form=fields.End)] = None


@_verb("get_part", reply=fields.PartReply)
class GetPart(Command, frozen=True, kw_only=True, gc=False):
    """Return a part of a blob."""

    upload: Annotated[int, _UPLOAD]
    number: Annotated[int, _NUMBER]


class Begun(Result, frozen=True, tag=True, gc=False):
    """The id of a new upload."""

    upload: int
