"""`holdfast namespace`: what is there and what is asked of it, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import holdfast

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli

FIELDS = holdfast.Policy.__struct_fields__
PARTS = holdfast.Parts.__struct_fields__


def test_list(cli: Cli) -> None:
    """Every namespace is a line, or one document holds them all."""
    cli.did("set", "k", "1")
    cli.did("set", "k", "1", "--plugin", "other")
    rows = [line.split("\t") for line in cli.did("namespace", "list").out.splitlines()]
    assert [row[:4] for row in rows] == [["kv/jobs", "1", "2", "1"], ["kv/other", "1", "2", "1"]]
    listed = cli.did("namespace", "list", "--json").json["namespaces"]
    assert [one["namespace"] for one in listed] == ["kv/jobs", "kv/other"]


def test_show(cli: Cli) -> None:
    """What a namespace holds and every field of its policy is shown, also where nothing was asked."""
    rows = dict(line.split("\t") for line in cli.did("namespace", "show").out.splitlines())
    kept = [f"{part}_bytes" for part in PARTS]
    held = {"namespace": "kv/jobs"} | dict.fromkeys(("keys", "bytes", "version", "kept_bytes", *kept), "0")
    assert not held.keys() & set(FIELDS), "a part and a field of the policy share a line"
    assert rows == held | dict.fromkeys(FIELDS, "-")
    assert cli.did("namespace", "show", "table/jobs", "--json").json["policy"] == dict.fromkeys(FIELDS)


def test_set_every_field(cli: Cli) -> None:
    """Each field of a policy has an option, and a switch has its opposite."""
    numbers = [name for name in FIELDS if name not in ("ttl_required", "trash", "audit", "reveal")]
    asked = dict.fromkeys(numbers, 60) | {"max_value_bytes": 65_536}
    options = [word for name in numbers for word in (f"--{name.replace('_', '-')}", str(asked[name]))]
    options += ["--reveal", "never"]
    told = cli.did("namespace", "set", *options, "--ttl-required", "--trash", "--audit", "--json").json
    expected = asked | dict.fromkeys(("ttl_required", "trash", "audit"), True) | {"reveal": "never"}
    assert told == {"namespace": "kv/jobs", "policy": expected}
    off = cli.did("namespace", "set", "--no-ttl-required", "--no-trash", "--no-audit", "--json").json[
        "policy"
    ]
    assert off == expected | dict.fromkeys(("ttl_required", "trash", "audit"), False)
    assert cli.did("namespace", "show", "--json").json["policy"] == off


def test_only_what_is_named_changes(cli: Cli) -> None:
    """A field stays until it is set or cleared, and the rules hold for the whole."""
    cli("namespace", "set", "--quota-keys", "5", "--ttl-max", "60")
    told = cli("namespace", "set", "--clear", "quota-keys", "--ttl-min", "10")
    assert (told.code, told.out, told.err) == (0, "", "holdfast: kv/jobs: ttl_min 10, ttl_max 60\n")
    refused = cli("namespace", "set", "--ttl-min", "61", "--json")
    assert (refused.code, refused.error["field"]) == (2, "ttl_min")
    assert cli("namespace", "set", "--clear", "ttl_min", "--clear", "ttl_max").err == (
        "holdfast: kv/jobs: no policy is set\n"
    )


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--clear", "nothing"],
        ["--clear", "audit", "--audit"],
        ["--quota-keys", "-1"],
        ["--quota-keys", "many"],
        ["elsewhere", "--audit"],
    ],
)
def test_an_empty_or_impossible_policy_is_refused(cli: Cli, options: list[str]) -> None:
    """Nothing is changed by a command that says nothing or the impossible."""
    assert cli("namespace", "set", *options).code == 2
    assert cli.did("namespace", "list").out == ""


def test_a_policy_holds_for_the_other_commands(cli: Cli) -> None:
    """What was set here is applied there, and who set it is recorded."""
    cli("namespace", "set", "kv/jobs", "--quota-keys", "0", "--audit", "--writer", "ops", "--spec-ref", "doc")
    assert cli("set", "k", "1", "--json").error["error_code"] == "QUOTA_EXCEEDED"
    [record] = cli.did("audit", "log", "--json").jsons
    assert (record["op"], record["writer"], record["spec_ref"]) == ("policy", "ops", "doc")
    assert cli.did("namespace", "show", "--json").json["policy"]["quota_keys"] == 0
