"""A program that uses a client made by a foreign generator: `generated_process.py FOLDER URL TOKEN`."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main(folder: str, url: str, token: str) -> None:
    """Put, get, list, change and remove, with types all the way, and print what a reader should see."""
    sys.path.insert(0, folder)
    client = importlib.import_module("made.client").AuthenticatedClient(base_url=url, token=token)
    models = importlib.import_module("made.models")

    def call(family: str, verb: str, *owner: str, **fields: Any) -> Any:
        module = importlib.import_module(f"made.api.{family}.{family}_{verb}")
        return module.sync_detailed(*owner, client=client, **fields)

    stored = call("kv", "put_value", "trivia", "game/42 é", body={"turn": "alice"}, holdfast_ttl=60)
    print("put", stored.parsed.version, stored.headers["etag"], stored.parsed.expires_at is not None)
    found = call("kv", "get_value", "trivia", "game/42 é")
    print("get", found.parsed, found.headers["etag"])
    refused = call("kv", "put_value", "trivia", "game/42 é", body=1, if_match='"0"')
    print("refused", refused.status_code.value, refused.parsed.code.value, refused.parsed.current["version"])
    body = models.IncrFields(key="n", by=2)
    print("incr", call("kv", "incr", "trivia", body=body).parsed.value)
    print("list", call("kv", "list_keys", "trivia", limit=1).parsed.to_dict())
    created = models.CreateTableFields.from_dict(
        {"table": "events", "partition_key": {"name": "user", "type": "string"}}
    )
    print("table", call("table", "create_table", "trivia", body=created).parsed.table)
    removed = call("kv", "delete_value", "trivia", "game/42 é", if_match='"1"')
    print("removed", removed.parsed.deleted)


if __name__ == "__main__":
    main(*sys.argv[1:])
