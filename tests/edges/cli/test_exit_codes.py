"""Exit codes: scripts can tell outcomes apart, and every error has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import errors
from holdfast.edges.cli import output as exit_codes
from holdfast.edges.cli.output import EXIT_CODES, exit_code

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli


def test_the_table_is_total() -> None:
    """Every error that there is has an exit code, and no exit code is for an error that there is not."""
    assert set(EXIT_CODES) == {cls.code for cls in errors.error_classes()}


@pytest.mark.parametrize("cls", list(errors.error_classes()), ids=lambda cls: cls.code)
def test_kinds_of_errors_have_their_codes(cls: type[errors.HoldfastError]) -> None:
    """What may succeed later is 5, what was lost to another is 4, what is illegal is 2, as promised."""
    code = exit_code(cls("x"))
    if issubclass(cls, errors.Transient | errors.OutcomeUnknown):
        assert code == exit_codes.UNAVAILABLE
    elif issubclass(cls, errors.VersionConflict | errors.ConditionFailed | errors.Fenced):
        assert code == exit_codes.CONFLICT
    elif cls.code.startswith("INVALID_") or cls in (
        errors.ValidationError,
        errors.MissingField,
        errors.ValueTooLarge,
        errors.TooExpensive,
    ):
        assert code == exit_codes.USAGE
    elif cls.code.endswith("_NOT_FOUND"):
        assert code == exit_codes.NOT_FOUND
    elif cls is errors.PermissionDenied:
        assert code == exit_codes.FORBIDDEN
    else:
        assert code in (exit_codes.ERROR, exit_codes.CONFLICT)


@pytest.mark.parametrize(
    ("arguments", "code", "error_code"),
    [
        (["get", "nothing"], 3, "KEY_NOT_FOUND"),
        (["ttl", "set", "nothing", "5"], 3, "KEY_NOT_FOUND"),
        (["restore", "nothing"], 3, "KEY_NOT_FOUND"),
        (["set", "k", "1", "--if-version", "7"], 4, "VERSION_CONFLICT"),
        (["set", "k", "hello"], 2, "VALIDATION_ERROR"),
        (["set", "", "1"], 2, "VALIDATION_ERROR"),
        (["set", "k", "1", "--ttl", "0"], 2, "VALIDATION_ERROR"),
        (["set", "k", "1", "--ttl", "1.5"], 2, "VALIDATION_ERROR"),
        (["set", "k", "1", "--ttl", "soon"], 2, "VALIDATION_ERROR"),
        (["set", "k", "1", "--ttl", "true"], 2, "VALIDATION_ERROR"),
        (["get", "k", "--plugin", "Upper"], 2, "INVALID_PLUGIN_NAME"),
        (["get"], 2, "MISSING_FIELD"),
        (["get", "k", "--nonsense"], 2, "VALIDATION_ERROR"),
        (["gte", "k"], 2, "VALIDATION_ERROR"),
        (["get", "k", "--url", "ftp://x"], 2, "VALIDATION_ERROR"),
        (["get", "k", "--url", "no/such/folder/state.db"], 5, "UNAVAILABLE"),
        (["migrate", "current", "--db", "memory://"], 1, "UNSUPPORTED"),
    ],
)
def test_outcomes(cli: Cli, arguments: list[str], code: int, error_code: str) -> None:
    """The exit code says what went wrong, one line on stderr says it to people, a document to scripts."""
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("holdfast: ")
    assert outcome.err.count("\n") == 1
    as_json = cli(*arguments, "--json")
    assert (as_json.code, as_json.out) == (code, "")
    assert as_json.error["error_code"] == error_code
    assert as_json.error["message"]


def test_a_conflict_carries_the_current_entry(cli: Cli) -> None:
    """Who loses a race learns from the error what is there instead."""
    cli.did("set", "k", '{"a":1}')
    lost = cli("set", "k", "2", "--if-version", "9", "--json")
    assert lost.code == 4
    assert lost.error["current"]["value"] == {"a": 1}
    assert lost.error["current"]["version"] == 1
    assert lost.error["retryable"] is False


def test_a_reused_request_id_says_so(cli: Cli) -> None:
    """An id that comes back with other content is a conflict of its own kind."""
    cli.did("set", "k", "1", "--request-id", "r")
    reused = cli("set", "k", "2", "--request-id", "r", "--json")
    assert (reused.code, reused.error["reason"]) == (4, "request_id_reused")


def test_the_message_names_the_missing_namespace(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a namespace the message says how to name one."""
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    outcome = cli("get", "k")
    assert outcome.code == 2
    assert "--plugin NAME" in outcome.err
    assert cli("get", "k", "--tenant", "acme", "--json").error["field"] == "project"


def test_two_ways_to_name_a_namespace_exclude_each_other(cli: Cli) -> None:
    """A flag may overrule a variable, but two flags that contradict each other are refused."""
    assert cli("get", "k", "--plugin", "p", "--tenant", "acme", "--project", "web").code == 2
    assert cli.did("set", "k", "1", "--tenant", "acme", "--project", "web", "--json").json["key"] == (
        "tenant/acme/project/web/k"
    )
