"""An entry in the console: hidden where looks are recorded until a person asks, and the audit knows who."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import Policy
from tests.console.visiting import log_in, page, refused

if TYPE_CHECKING:
    import pytest

    from tests.edges.http.ground import Served

SECRET = {"password": "hunter2"}


async def test_an_entry_is_masked(here: Served) -> None:
    """An entry shows all but its value: kind and size, envelope, history, and what the visitor may do."""
    await here.store.set_policy("kv/trivia", {"audit": True})
    kv = here.store.kv("trivia")
    await kv.set("game:1", 1)
    await kv.set("game:1", SECRET, ttl=60, writer="alice", request_id="r1", spec_ref="spec/1")
    found = await page(here, "/ui/kv/trivia/game:1")
    entry = found["entry"]
    assert (entry["version"], entry["kind"], entry["size"]) == (2, "object", 22)
    assert (entry["last_writer"], entry["request_id"], entry["spec_ref"]) == ("alice", "r1", "spec/1")
    assert [change["version"] for change in found["history"]] == [2, 1]
    assert (found["reveal"], found["revealed"], "set" in found["may"]) == ("audited", False, True)
    assert "hunter2" not in str(found)


async def test_a_value_is_shown_where_nothing_is_audited(
    here: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the policy asks for no reason, the page has the value unasked, and a refresh logs nothing."""
    await here.store.kv("trivia").set("a", SECRET)
    with caplog.at_level("INFO", logger="holdfast.reveals"):
        found = await page(here, "/ui/kv/trivia/a")
    assert (found["entry"]["value"], found["revealed"]) == (SECRET, True)
    assert "revealed" not in caplog.text
    await here.store.set_policy("kv/trivia", {"audit": True, "reveal": "open"})
    assert (await page(here, "/ui/kv/trivia/a"))["entry"]["text"] == '{"password":"hunter2"}'


async def test_a_missing_entry_still_has_a_page(here: Served) -> None:
    """A key without an entry has a page too, with its history and what the trash holds."""
    await here.store.set_policy("kv/trivia", {"trash": True})
    kv = here.store.kv("trivia")
    await kv.set("a", SECRET)
    await kv.delete("a", writer="bob")
    found = await page(here, "/ui/kv/trivia/a?reveal=1&why=OPS-1")
    assert (found["entry"], found["trashed"]["by"], found["revealed"]) == (None, "bob", False)
    assert "hunter2" not in str(found)
    assert (await page(here, "/ui/kv/trivia/never"))["trashed"] is None


async def test_keys_that_a_path_can_not_hold(here: Served) -> None:
    """A key may be given in the path, escaped, or as a parameter; both show the same entry."""
    for key in ("a b/c?d#e%f", "..", "ünï/😀", "a/../b"):
        await here.store.kv("trivia").set(key, 1)
        response = await here.client.get(
            "/ui/kv/trivia", params={"key": key}, headers={"Accept": "application/json"}
        )
        assert (response.json()["page"], response.json()["key"]) == ("entry", key)
        assert response.json()["entry"]["version"] > 0
    assert (await page(here, "/ui/kv/trivia/a%20b%2Fc%3Fd%23e%25f"))["entry"]["version"] == 1
    assert (await refused(here, "/ui/kv/trivia/%ff"))[0] == 400


async def test_a_reveal_wants_a_reason_and_is_audited(closed: Served) -> None:
    """In a namespace with an audit, a record says who looked, when and why; the audit stays whole."""
    await closed.store.set_policy("kv/trivia", {"audit": True})
    kv = closed.store.kv("trivia")
    await kv.set("a", SECRET)
    made = await closed.store.tokens().create(plugin="trivia")
    await log_in(closed, token=made.token)
    status, problem = await refused(closed, "/ui/kv/trivia/a?reveal=1")
    assert (status, problem["code"], "say why" in problem["detail"]) == (400, "MISSING_FIELD", True)
    found = await page(closed, "/ui/kv/trivia/a?reveal=1&why=OPS-12")
    assert (found["entry"]["value"], found["revealed"]) == (SECRET, True)
    assert found["entry"]["text"] == '{"password":"hunter2"}'
    audit = closed.store.audit("kv/trivia")
    *_, told = (await audit.log()).records
    assert (told.op, told.key, told.spec_ref) == ("revealed", "a", "OPS-12")
    assert told.principal == f"token:trivia#{made.about.id}"
    assert (await kv.get("a")).version == found["entry"]["version"]  # type: ignore[union-attr]
    await kv.set("b", 1)
    assert (await audit.verify()).whole
    assert (await audit.verify_values()).whole
    assert [change.op for change in await kv.history("a")] == ["set"]


async def test_an_entry_says_how_it_is_revealed(here: Served) -> None:
    """A page says how values are revealed: by default with a reason only in a namespace with an audit.

    `open` needs no reason and records nothing; `never` shows no value; an unknown word is refused.
    """
    audit = here.store.audit("kv/trivia")
    await here.store.kv("trivia").set("a", SECRET)
    for policy, how, recorded in (
        (Policy(), "open", "log"),
        (Policy(audit=True), "audited", "audit"),
        (Policy(reveal="audited"), "audited", "log"),
        (Policy(reveal="audited", audit=True), "audited", "audit"),
    ):
        await here.store.set_policy("kv/trivia", policy)
        found = await page(here, "/ui/kv/trivia/a")
        assert (found["reveal"], found["recorded"]) == (how, recorded), policy
        assert ("hunter2" in str(found)) == (how == "open"), policy
    await here.store.semantic("acme", "web").set("a", SECRET, semantics={"purpose": "config"})
    found = await page(here, "/ui/semantic/acme/web/a")
    assert (found["reveal"], found["recorded"]) == ("audited", "audit")
    await here.store.set_policy("kv/trivia", {"audit": True, "reveal": "open"})
    assert (await page(here, "/ui/kv/trivia/a?reveal=1"))["entry"]["value"] == SECRET
    assert "revealed" not in [one.op for one in (await audit.log()).records]
    await here.store.set_policy("kv/trivia", {"audit": True, "reveal": "never"})
    status, problem = await refused(here, "/ui/kv/trivia/a?reveal=1&why=please")
    assert (status, "never revealed" in problem["detail"]) == (403, True)
    masked = await page(here, "/ui/kv/trivia/a")
    assert (masked["reveal"], "hunter2" in str(masked)) == ("never", False)
    wrong = await here.call("/v1/admin:set_policy", namespace="kv/trivia", policy={"reveal": "maybe"})
    assert (wrong.status_code, "open, audited or never" in wrong.json()["detail"]) == (400, True)


async def test_a_reveal_without_an_audit_is_logged(here: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Where there is no audit, no reason is needed, and the service's log says who looked at which key."""
    await here.store.kv("trivia").set("a", SECRET)
    with caplog.at_level("INFO", logger="holdfast.reveals"):
        for why in ("", "&why=OPS-12"):
            assert (await page(here, f"/ui/kv/trivia/a?reveal=1{why}"))["entry"]["value"] == SECRET
    assert "revealed a of kv/trivia to open:trivia: no reason was given" in caplog.text
    assert "revealed a of kv/trivia to open:trivia: OPS-12" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_token_without_the_verb_reveals_nothing(closed: Served) -> None:
    """Revealing is a verb of its own: a token for looking around can leave it out."""
    await closed.store.kv("trivia").set("a", SECRET)
    made = await closed.store.tokens().create(plugin="trivia", verbs=["get", "list"])
    await log_in(closed, token=made.token)
    masked = await page(closed, "/ui/kv/trivia/a")
    assert (masked["history"], masked["recorded"], "hunter2" in str(masked)) == (None, None, False)
    status, problem = await refused(closed, "/ui/kv/trivia/a?reveal=1&why=OPS-1")
    assert (status, "does not allow reveal" in problem["detail"]) == (403, True)
    more = await closed.store.tokens().create(plugin="trivia", verbs=["get", "list", "stats"])
    await log_in(closed, token=more.token)
    masked = await page(closed, "/ui/kv/trivia/a")
    assert (masked["reveal"], masked["revealed"], "hunter2" in str(masked)) == ("open", False, False)
    assert "hunter2" not in str(await page(closed, "/ui/kv/trivia"))


async def test_long_numbers_stay_exact(here: Served) -> None:
    """The text of a value is as stored, so that an editor need not round what a script can't hold."""
    number = 12345678901234567890
    await here.store.kv("trivia").set("n", number)
    found = await page(here, "/ui/kv/trivia/n?reveal=1&why=OPS-1")
    assert found["entry"]["text"] == str(number)


async def test_a_reveal_shows_the_entry_in_the_trash_too(here: Served) -> None:
    """After a key was deleted and written anew, a reveal shows both values, to compare them."""
    await here.store.set_policy("kv/trivia", {"trash": True, "audit": True})
    kv = here.store.kv("trivia")
    await kv.set("a", {"n": 1})
    await kv.delete("a")
    await kv.set("a", {"n": 2})
    masked: dict[str, Any] = (await page(here, "/ui/kv/trivia/a"))["trashed"]
    assert "text" not in masked
    assert "value" not in masked
    shown = await page(here, "/ui/kv/trivia/a?reveal=1&why=OPS-1")
    assert (shown["trashed"]["text"], shown["entry"]["text"]) == ('{"n":1}', '{"n":2}')
