"""Bugs in what is remembered: requests, the audit, dead letters, items and their indexes.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_RULES: Final = ("tests/unit/test_decide.py", "tests/conformance/test_memory.py")
_ATTACKS: Final = ("tests/security/test_audit_keys.py",)
_AUDIT: Final = ("tests/unit/test_upkeep.py", "tests/unit/test_audit.py", *_RULES)
_UPKEEP: Final = ("tests/unit/test_upkeep.py", "tests/unit/test_reaper.py", *_RULES)

PLANTS: Final = (
    Plant(
        "a forgotten request is replayed",
        "decide/requests.py",
        "if known is None or not known.alive(draft.now):",
        "if known is None:",
        _RULES,
    ),
    Plant(
        "another request with a used id is replayed",
        "decide/requests.py",
        "if memory.content != content:",
        "if memory.content < content:",
        _RULES,
    ),
    Plant(
        "a refused request is not taken back",
        "decide/requests.py",
        "return _remember(draft, command, content, apply(draft, command))",
        "draft.keep()\n        return _remember(draft, command, content, apply(draft, command))",
        _RULES,
    ),
    Plant(
        "a replayed request is logged as a second write",
        "decide/requests.py",
        "row=row, replayed=True",
        "row=row",
        ("tests/edges/nats/test_log_fields.py",),
    ),
    Plant(
        "an entry that expires is not logged",
        "decide/entries.py",
        "    draft.expired = True\n",
        "",
        ("tests/edges/nats/test_log_fields.py",),
    ),
    Plant(
        "a request that is remembered again counts twice",
        "decide/requests.py",
        "    if draft.row(address) is None:\n        draft.namespace.requests += 1",
        "    draft.namespace.requests += 1",
        _RULES,
    ),
    Plant(
        "a partly refused request is forgotten",
        "decide/requests.py",
        "not any(reply.items)",
        "not all(reply.items)",
        _RULES,
    ),
    Plant(
        "a request is remembered for a thousandth of the time",
        "decide/requests.py",
        "rules.REQUEST_RETENTION * 1000",
        "rules.REQUEST_RETENTION",
        _RULES,
    ),
    Plant(
        "the audit misses expiry",
        "decide/entries.py",
        "    audit(draft, record, row, None, spec_ref=row.spec_ref)\n",
        "",
        _AUDIT,
    ),
    Plant(
        "a record hangs on the pruned one",
        "decide/audit.py",
        "return ANEW if anew and not head.broken else head.last",
        "return ANEW if anew and not head.broken else head.anchor",
        _AUDIT,
    ),
    Plant(
        "the head forgets the last signature",
        "decide/audit.py",
        "number=made.number, last=made.signature, version=record.version)",
        "number=made.number, version=record.version)",
        _AUDIT,
    ),
    Plant(
        "a record hangs on one that was taken back",
        "decide/audit.py",
        "if signed is not None and row is known:",
        "if signed is not None:",
        _AUDIT,
    ),
    Plant(
        "switching the audit off is not recorded",
        "decide/upkeep.py",
        "if recorded or audited(namespace):",
        "if audited(namespace):",
        _AUDIT,
    ),
    Plant(
        "a record is pruned a moment too late",
        "decide/upkeep.py",
        "if last.at > draft.now - kept * 1000:",
        "if last.at >= draft.now - kept * 1000:",
        _AUDIT,
    ),
    Plant(
        "the audit is pruned from its middle",
        "decide/upkeep.py",
        " or command.first != head.floor + 1:",
        ":",
        _AUDIT,
    ),
    Plant(
        "an edited record passes",
        "audit/chain.py",
        "same(_mac(secret, _KINDS[type(signed)], namespace, body), signed.signature)",
        "len(_mac(secret, _KINDS[type(signed)], namespace, body)) == len(signed.signature)",
        _AUDIT,
    ),
    Plant(
        "a record of another namespace passes",
        "audit/chain.py",
        '(kind, namespace.encode(), b"\\n", body)',
        "(kind, body)",
        _AUDIT,
    ),
    Plant(
        "a record is taken in another spelling",
        "audit/chain.py",
        "if _ENCODE(signed) != stored:",
        "if not stored:",
        _ATTACKS,
    ),
    Plant(
        "a head of a retired key is followed",
        "audit/chain.py",
        "return STALE if keys.retired(head.signed_by) else head",
        "return head",
        _ATTACKS,
    ),
    Plant(
        "a key signs what is not in its range",
        "audit/verify.py",
        "if wrong or not begins or term not in (None, record.signed_by):",
        "if not begins:",
        _ATTACKS,
    ),
    Plant(
        "the audit takes every caller for a program",
        "decide/audit.py",
        "return EMBEDDED if command.origin.principal is msgspec.UNSET else command.origin.principal",
        "return EMBEDDED",
        ("tests/edges/nats/test_principal.py",),
    ),
    Plant(
        "the journal is trimmed past its end",
        "decide/upkeep.py",
        "min(command.upto, draft.namespace.revision)",
        "command.upto",
        _UPKEEP,
    ),
    Plant(
        "what must be forgotten by now is kept",
        "decide/upkeep.py",
        "row.expires_at <= max(draft.now, command.before or 0)",
        "row.expires_at < max(draft.now, command.before or 0)",
        _UPKEEP,
    ),
    Plant(
        "forgotten requests are still counted",
        "decide/upkeep.py",
        "if address.space == REQUEST:",
        "if address.space == REQUEST and not row.alive(draft.now):",
        _UPKEEP,
    ),
    Plant(
        "a sweep takes entries before their time",
        "decide/upkeep.py",
        "            if not row.alive(draft.now):\n                expire(",
        "            if row.expires_at:\n                expire(",
        _UPKEEP,
    ),
    Plant(
        "letters weigh nothing of their own",
        "decide/letters.py",
        "letters * (size + _OVERHEAD)",
        "letters * size",
        ("tests/unit/test_letters.py", *_RULES),
    ),
    Plant(
        "a dropped letter is still counted",
        "decide/letters.py",
        "_hold(draft, letters=-1, size=row.size)",
        "_hold(draft, letters=0, size=row.size)",
        ("tests/unit/test_letters.py", *_RULES),
    ),
    Plant(
        "a transaction writes an item twice",
        "decide/items.py",
        "if seen.setdefault(place.address, position) != position:",
        "if seen.setdefault(place.address, position) > position:",
        _RULES,
    ),
    Plant(
        "an index keeps what an item was",
        "decide/index_entries.py",
        "for entry in changes.gone:",
        "for entry in changes.gone[1:]:",
        _RULES,
    ),
    Plant(
        "an item that is replaced is counted again",
        "decide/items.py",
        "        count_item(draft, place.address.key, before, adds=-1)\n    count_item",
        "        pass\n    count_item",
        _RULES,
    ),
    Plant(
        "an expired item stays in the indexes",
        "decide/index_entries.py",
        "    draft.remove_unseen(address)",
        "    draft.put(address, None)",
        _RULES,
    ),
    Plant(
        "a new index has items that are gone",
        "decide/tables.py",
        "if found is None or not found.alive(draft.now):",
        "if found is None:",
        ("tests/unit/test_table_upkeep.py", *_RULES),
    ),
    Plant(
        "an abandoned table's indexes stay",
        "decide/tables.py",
        "    for index in schema.indexes:\n        abandon(draft, schema.index_space(index))\n    return",
        "    return",
        ("tests/unit/test_table_upkeep.py", *_RULES),
    ),
    Plant(
        "a purge takes rows of a living table",
        "decide/tables.py",
        "    if draft.row(marker) is None:\n        return Removed(0)\n",
        "",
        ("tests/unit/test_table_upkeep.py", *_RULES),
    ),
)
