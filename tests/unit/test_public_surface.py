"""The public names, written out once more: what is here changes only with a line in the changelog.

A change of this file is a change for users.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Final

import pytest

import holdfast
from holdfast import KV
from holdfast.verbs.fields import Provenance

NAMES: Final = {
    *("KEEP", "KV", "Store", "open", "register_engine", "request_id", "sync"),
    *("record_spans", "traced"),
    *("Item", "ItemChange", "ItemChanges", "ItemConflict", "ItemPage", "ReaperHandle", "Tables"),
    *("attr", "if_not_exists"),
    *("AuditEntry", "AuditPage", "TrashEntry", "TrashPage", "Verdict"),
    *("SlowPage", "SlowRequest"),
    *("Compared", "Discrepancy"),
    *("Escalated", "Letter", "LetterPage"),
    *("Blob", "BlobPage", "BlobReader", "Blobs"),
    *("BatchResult", "Change", "Changes", "Conflict", "Entry", "Page", "Parts", "Policy", "Semantics"),
    "Stats",
    "Rescued",
    *("Busy", "ConditionFailed", "DatabaseError", "Fenced", "HoldfastError", "IndexNotFound"),
    *("InternalError", "InvalidJson", "InvalidPluginName", "InvalidSubject", "ItemNotFound"),
    *("KeyNotFound", "LockLost", "MissingField", "OutcomeUnknown", "PermissionDenied", "QuotaExceeded"),
    *("RateLimited", "StorageFull", "TableExists", "TableNotFound", "Timeout", "TooExpensive"),
    *(
        "TtlNotConfigured",
        "Unavailable",
        "Unsupported",
        "ValidationError",
        "ValueTooLarge",
        "VersionConflict",
    ),
}
VERBS: Final = {
    "set": "key, value, *, ttl=None, expected_version=None, semantics=None, **provenance",
    "get": "key",
    "exists": "key",
    "delete": "key, *, expected_version=None, **provenance",
    "list": (
        "prefix='', *, limit=None, cursor=None, after=None, reverse=False, values=False, purpose=None, "
        "producer=None, writer=None, spec_ref=None, expires_before=None"
    ),
    "incr": "key, by=1, *, ttl=None, only_if_exists=False, expected_version=None, **provenance",
    "append": "name, value, *, ttl=None, keep=None, semantics=None, **provenance",
    "get_ttl": "key",
    "set_ttl": "key, ttl_seconds, *, expected_version=None, **provenance",
    "touch": "key, ttl_seconds, *, expected_version=None, **provenance",
    "remove_ttl": "key, *, expected_version=None, **provenance",
    "get_many": "keys",
    "set_many": "items, **provenance",
    "delete_many": "keys, **provenance",
    "delete_prefix": "prefix, *, limit=None, cursor=None, dry_run=False, **provenance",
    "batch": "*, checks=(), writes, **provenance",
    "changes": "since=0, *, prefix='', limit=None",
    "watch": "prefix='', since=None",
    "history": "key, *, limit=None",
    "restore": "key, *, ttl=None, expected_version=None, **provenance",
    "reveal": "key, why=None, **viewing",
}
RECIPES: Final = {
    "mirror": "prefix='', *, on_change=None",
    "lock": "name, *, ttl=30, timeout=None, owner=None",
    "checkpoint": "name, *, order=None, owner=None",
    "cursor": "name, *, order=None, owner=None",
    "counter": "name, *, ttl=None",
    "flag": "name, default, *, owner=None",
    "flags": "",
    "hashed_key": "prefix, identifier",
    "original_of": "key",
    "update": "key, change, **options",
}
FIELDS: Final = {
    "Entry": "key value version created_at updated_at expires_at last_writer semantics request_id spec_ref",
    "Semantics": "purpose producer consumer_hints ttl_seconds",
    "Page": "keys truncated cursor entries",
    "Change": (
        "op key version at last_writer request_id purpose lag_ms expired_version error_code attempts "
        "value_hash"
    ),
    "Letter": "number at key verb request error_code message attempts writer request_id",
    "LetterPage": "letters next",
    "Changes": "changes next gap oldest",
    "BatchResult": "versions numbers",
    "Conflict": "key expected_version current",
    "Stats": "namespace keys bytes version changed_at kept_bytes parts",
    "Parts": "entries items indexes journal trash letters requests other audit blobs",
    "Blob": (
        "name size content_type metadata checksum version created_at updated_at expires_at last_writer "
        "request_id spec_ref"
    ),
    "BlobPage": "blobs truncated cursor",
    "Rescued": "path bytes pages namespaces entries trouble",
    "Policy": (
        "quota_keys quota_bytes max_value_bytes rate_limit ttl_default ttl_min ttl_max ttl_required trash "
        "trash_retention journal_retention audit audit_retention reveal"
    ),
    "AuditEntry": (
        "number at writer op key version_before version purpose request_id spec_ref before after signed_by "
        "previous signature principal form trace_id"
    ),
    "AuditPage": "records next",
    "TrashEntry": "key op at by version purpose expires_at purged_at value",
    "TrashPage": "entries truncated cursor",
    "SlowPage": "requests next slow instance",
    "SlowRequest": "number at plugin verb key milliseconds error_code request_id trace_id",
    "Verdict": "whole records head broken_at reason",
    "Compared": "whole entries unrecorded expired found",
    "Discrepancy": "key what number reason",
}


def parameters(call: object) -> str:
    """The parameters of a function, without types and without the handle itself."""
    assert callable(call)
    signature = inspect.signature(call)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(bare))[1:-1]


def test_public_names() -> None:
    """Exactly these names are public, and each exists."""
    assert set(holdfast.__all__) == NAMES
    assert len(holdfast.__all__) == len(NAMES)
    for name in NAMES:
        assert hasattr(holdfast, name)


@pytest.mark.parametrize("verb", VERBS | RECIPES)
def test_signatures_of_verbs_and_recipes(verb: str) -> None:
    """Each verb and each recipe takes what it is promised to take, under these names."""
    assert parameters(getattr(KV, verb)) == (VERBS | RECIPES)[verb]


def test_there_are_no_other_verbs() -> None:
    """Every public method of the handle is a verb or makes a recipe."""
    methods = {name for name, _ in inspect.getmembers(KV, inspect.isfunction) if not name.startswith("_")}
    assert methods == set(VERBS | RECIPES)


def test_request_id_takes_a_workflow_and_a_time() -> None:
    """A request id is made of a workflow and a time."""
    assert parameters(holdfast.request_id) == "workflow_id, timestamp"


def test_provenance_fields_of_writing_verbs() -> None:
    """Every writing verb takes these beside its own fields."""
    assert set(Provenance.__annotations__) == {
        *("request_id", "once", "writer", "spec_ref", "fence", "timeout")
    }
    assert Provenance.__required_keys__ == frozenset()


@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_public_values(name: str) -> None:
    """Each noun has these fields, in this order."""
    assert getattr(holdfast, name).__struct_fields__ == tuple(FIELDS[name].split())


def test_signature_of_open() -> None:
    """A store is opened by its URL; everything else is optional."""
    assert parameters(holdfast.open) == (
        "url, *, clock=None, writer=None, sweep_interval=300, reap=True, audit_key=None, defaults=None, "
        "cache_bytes=None"
    )


def test_everything_public_is_explained() -> None:
    """Each public name and each verb says what it does."""
    for name in NAMES - {"KEEP"}:
        assert inspect.getdoc(getattr(holdfast, name)), name
    for verb in VERBS | RECIPES:
        assert inspect.getdoc(getattr(KV, verb)), verb


def test_importing_is_cheap() -> None:
    """Whoever imports the package pays for no driver, migration tool, test tool, lock, table or decision."""
    heavy = ("sqlalchemy", "alembic", "asyncpg", "nats", "pytest", "hypothesis", "uvloop")
    own = (
        "holdfast.handles.recipes.lock",
        "holdfast.handles.recipes.flag",
        "holdfast.tables",
        "holdfast.decide.decision",
    )
    code = f"import holdfast, sys; print([name for name in {heavy + own!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_first_write_waits_for_no_import() -> None:
    """A store that notices expiry by itself will write, and has what decides before anybody asks for it."""
    code = """
import asyncio, sys, holdfast
async def main():
    async with holdfast.open("sqlite://"):
        for _ in range(10):
            await asyncio.sleep(0)
        print("holdfast.decide.decision" in sys.modules)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
