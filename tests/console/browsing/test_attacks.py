"""The attack list: what others store or send does not run in the console, and does not act through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest

from tests.console.browsing.ground import OWN_PAGE, site_of_another

if TYPE_CHECKING:
    from tests.browser import Window
    from tests.browser_fixtures import OpenWindow
    from tests.console.browsing.ground import Console
    from tests.console.conftest import Enter

SCRIPTS: Final = (
    "<img src=x onerror=\"window.owned='img'\">",
    "\"'><script>window.owned='script'</script>",
    "javascript:window.owned='link'",
    "${window.owned='template'}{{constructor.constructor(\"window.owned='eval'\")()}}",
)
"""Texts that run where a page treats data as code."""
BOTH: Final = SCRIPTS[0] + SCRIPTS[1]
"""A text with two of them, so that one page shows both."""
NODE: Final = {
    "type": "img",
    "props": {
        "src": "x",
        "onerror": "window.owned='node'",
        "dangerouslySetInnerHTML": {"__html": SCRIPTS[0]},
    },
    "__html": SCRIPTS[0],
    "constructor": None,
    "__proto__": {"owned": "prototype"},
}
"""A value that looks like an element of the library that draws the pages."""


async def _unharmed(window: Window) -> None:
    """Assert that nothing stored has become a part of the page or was run."""
    page = window.page
    assert await page.evaluate("window.owned ?? ({}).owned ?? null") is None
    foreign = "img[src='x'], main script, iframe, object, embed, a[href^='javascript:'], [onerror], [onload]"
    assert await page.locator(foreign).count() == 0


async def _poison(console: Console) -> None:
    """Store scripts wherever a caller can put text."""
    store = console.store
    kv, tables, blobs = store.kv("attacker"), store.tables("attacker"), store.blobs("attacker")
    for family in ("kv", "table", "blob"):
        await store.set_policy(f"{family}/attacker", {"audit": True, "trash": True})
    await tables.create_table("loot", partition_key=("id", "string"))
    for number, script in enumerate((BOTH, *SCRIPTS)):
        await kv.set(
            f"{number}:{script}",
            {script: script, "node": NODE},
            writer=script,
            ttl=900,
            semantics={"purpose": "attack", "producer": script},
            spec_ref=script,
        )
        await kv.set(f"trash:{script}", script, writer=script)
        await kv.delete(f"trash:{script}", writer=script)
        await tables.put_item("loot", {"id": script, script: script, "node": NODE})
        await blobs.put(script, script.encode(), content_type="text/html", metadata={"note": script})
        request = {"key": script, "value": script, "request_id": f"attack-{number}", "writer": script}
        fields = {"verb": "set", "request": request, "error_code": "BUSY", "message": script, "attempts": 1}
        await console.call("/v1/kv/attacker:escalate", fields)


def _poisoned() -> list[str]:
    entry, item = quote(f"0:{BOTH}", safe=""), quote(BOTH, safe="")
    return [
        f"/ui/kv/attacker/{entry}",
        f"/ui/tables/attacker/loot/item?partition={item}",
        f"/ui/blobs/attacker/{item}",
        f"/ui/audit?namespace=kv%2Fattacker&writer={item}",
    ]


async def test_stored_scripts_are_shown_as_text(console: Console, enter: Enter) -> None:
    """Keys, values, writers, purposes, names and messages that hold markup or code are text on every page."""
    await _poison(console)
    window = await enter()
    lists = (
        "/",
        "/ui/kv",
        "/ui/kv/attacker",
        "/ui/inbox?namespace=kv%2Fattacker",
        "/ui/inbox?namespace=kv%2Fattacker&tab=expiring",
        "/ui/inbox?namespace=kv%2Fattacker&tab=trash",
        "/ui/live?namespace=kv/attacker",
        "/ui/search?q=onerror",
    )
    tables = ("/ui/tables/attacker/loot", "/ui/blobs/attacker", "/ui/policies/kv/attacker?try=1&ttl_min=1000")
    for path in (*lists, *tables, *_poisoned()):
        await window.open(path)
        assert await window.page.get_by_role("alert").count() == 0, path
        reveal = window.page.get_by_role("button", name="Reveal", exact=False)
        if await reveal.count():
            await _reveal(window)
        await _unharmed(window)
    for family in ("kv", "table", "blob"):  # then pages show values unasked
        await console.store.set_policy(f"{family}/attacker", {"reveal": "open"})
    for path in ("/ui/kv/attacker", "/ui/tables/attacker/loot", "/ui/blobs/attacker", *_poisoned()):
        await window.open(path)
        assert await window.page.get_by_role("button", name="Reveal", exact=False).count() == 0, path
        await _unharmed(window)


async def _reveal(window: Window) -> None:
    """Reveal the value of a page, with a reason."""
    page = window.page
    if (
        await page.locator("dialog[open]").count() == 0
        and await page.get_by_label("why", exact=False).count() == 0
    ):
        await page.get_by_role("button", name="Reveal", exact=False).first.click()
    await page.get_by_label("why", exact=False).first.fill("an attack is looked at")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("pre, .value, img.preview")


async def test_the_name_of_a_table_is_no_markup(console: Console) -> None:
    """A table can't be named so that its name is markup."""
    for script in SCRIPTS:
        fields = {"table": script, "partition_key": {"name": "id", "type": "string"}}
        headers = {"Authorization": f"Bearer {console.token}"}
        answer = await console.service.client.post(
            "/v1/table/attacker:create_table", json=fields, headers=headers
        )
        assert answer.status_code == 400


async def test_a_blob_of_html_runs_nothing(console: Console, enter: Enter) -> None:
    """A blob that is opened in the browser is cut off from the console: no script, no cookie, no origin."""
    page = b"<script>window.owned = 1; fetch('/v1/admin:tokens')</script><p id=here>hello</p>"
    await console.store.blobs("attacker").put("page.html", page, content_type="text/html")
    window = await enter()
    answer = await window.page.goto(f"{console.url}/v1/blob/attacker/page.html")
    assert answer is not None
    assert "sandbox" in answer.headers["content-security-policy"]
    # Where scripts may not run, Playwright can't look either: what is on the page is known from its text.
    assert await window.page.locator("#here").text_content() == "hello"
    assert all("script" in fault.lower() or "sandbox" in fault.lower() for fault in window.faults)
    assert window.faults, "the browser should have refused the script"
    window.faults.clear()


FORGERIES: Final = """
<form id=form method=post enctype=text/plain action="{url}/v1/kv/forged:set" target=frame>
<input name='{{"key":"form","value":1,"x":"' value='"}}'></form><iframe name=frame></iframe>
<script>
const send = (path, options) =>
  fetch("{url}" + path, {{credentials: "include", ...options}}).catch(() => null);
const body = JSON.stringify({{key: "fetch", value: 1}});
const json = {{"Content-Type": "application/json"}};
const accept = {{Accept: "application/json"}};
window.done = Promise.all([
  send("/v1/kv/forged:set", {{method: "POST", body, mode: "no-cors"}}),
  send("/v1/kv/forged:set", {{method: "POST", body, headers: json}}),
  send("/v1/kv/forged/put", {{method: "PUT", body: "1"}}),
  send("/v1/admin:token_create", {{method: "POST", body: '{{"operator": true}}', mode: "no-cors"}}),
  send("/ui/logout", {{method: "POST", body: "{{}}", mode: "no-cors"}}),
  send("/ui/kv/trivia/player%3Aada?reveal=1&why=forged", {{headers: accept, mode: "no-cors"}}),
  send("/ui/tokens", {{headers: accept}}).then((answer) => (window.read = answer?.ok ?? false)),
]);
document.getElementById("form").submit();
</script>
"""


async def test_a_page_of_another_origin_changes_and_reads_nothing(console: Console, enter: Enter) -> None:
    """Another port of this machine gets the session's cookie sent, and is refused all the same."""
    window = await enter()
    before = len((await console.json("/ui/tokens"))["tokens"])
    async with site_of_another(FORGERIES.format(url=console.url)) as attacker:
        await window.page.goto(attacker)
        await window.page.evaluate("window.done")
        await window.page.wait_for_load_state("networkidle")
        assert await window.page.evaluate("window.read") is False
    window.faults.clear()
    assert (await console.store.kv("forged").list()).keys == []
    assert len((await console.json("/ui/tokens"))["tokens"]) == before
    records = (await console.json("/ui/audit?namespace=kv%2Ftrivia&op=revealed"))["records"]
    assert [one for one in records if one["spec_ref"] == "forged"] == []
    await window.open("/ui/tokens")  # the session still holds: it was not logged out
    assert await window.page.get_by_role("heading", name="Tokens", exact=True).count() == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "none"},
        {},
    ],
)
async def test_a_forged_origin_is_refused(console: Console, headers: dict[str, str]) -> None:
    """With the cookie alone nothing can be changed: the request must come from a page of this service."""
    cookie = await _cookie(console)
    answer = await console.service.client.put(
        "/v1/kv/forged/direct", content=b"1", headers={**headers, "Cookie": cookie}
    )
    assert answer.status_code in (401, 403)
    assert await console.store.kv("forged").get("direct") is None


async def _cookie(console: Console) -> str:
    answer = await console.service.client.post("/ui/login", json={"token": console.token}, headers=OWN_PAGE)
    console.service.client.cookies.clear()
    return answer.headers["set-cookie"].partition(";")[0]


async def test_the_cookie_is_out_of_reach(console: Console, enter: Enter) -> None:
    """Scripts can't read the cookie, other sites do not get it sent, and each login makes a new one."""
    window = await enter()
    await window.open("/")
    assert await window.page.evaluate("document.cookie") == ""
    [cookie] = await window.page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    await console.enter(window)
    [again] = await window.page.context.cookies()
    assert again["value"] != cookie["value"]


async def test_another_name_is_refused(console: Console) -> None:
    """A name that its owner has pointed at this machine reads nothing, not even with the cookie."""
    cookie = await _cookie(console)
    for path in ("/", "/ui/kv", "/ui/login", "/v1/kv/trivia/banner", "/metrics"):
        for accept in ("application/json", "text/html"):
            headers = {"Host": "evil.example", "Cookie": cookie, "Accept": accept}
            answer = await console.service.client.get(path, headers=headers)
            assert answer.status_code == 421


async def test_the_console_is_not_framed(console: Console, enter: Enter) -> None:
    """No site can lay the console beneath something to click on, whatever its browser says of the request."""
    for path in ("/", "/ui/tokens", "/ui/login"):
        headers = (await console.service.client.get(path, headers={"Accept": "text/html"})).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
    window = await enter()
    html = f'<iframe src="{console.url}/ui/tokens"></iframe><embed src="{console.url}/">'
    async with site_of_another(html) as attacker:
        await window.page.goto(attacker)
        await window.page.wait_for_load_state("networkidle")
        for frame in window.page.frames[1:]:
            assert await frame.locator("#app").count() == 0
    assert window.faults
    window.faults.clear()


async def test_a_link_opens_one_session(console: Console, open_window: OpenWindow) -> None:
    """A link that was looked at still works, one that was used does not, and it is not in the history."""
    secret = console.service.sessions.link()
    path = f"/ui/login?once={secret}"
    looked = await console.service.client.get(path)  # as a preview of links does
    assert looked.status_code == 200
    owner, thief = await open_window(console.url), await open_window(console.url)
    await owner.page.goto(console.url + path)
    await owner.page.get_by_role("button", name="Open the console").click()
    await owner.page.wait_for_selector("main[aria-busy=false]")
    assert secret not in owner.page.url
    assert secret not in await owner.page.evaluate("JSON.stringify(performance.getEntriesByType('resource'))")
    await thief.page.goto(console.url + path)
    await thief.page.get_by_role("button", name="Open the console").click()
    await thief.page.get_by_role("alert").wait_for()
    assert "used before" in await thief.page.get_by_role("alert").inner_text()
    refused = await thief.page.request.get(f"{console.url}/ui/kv", headers={"Accept": "application/json"})
    assert refused.status == 401


async def test_a_revoked_token_ends_an_open_page(console: Console, enter: Enter) -> None:
    """A page that is open when its token is revoked changes nothing more and asks to log in."""
    made = await console.store.tokens().create(operator=True)
    window = await enter(made.token)
    await window.open("/ui/policies/kv/weather")
    await console.store.tokens().revoke(made.about.id)
    window.page.set_default_timeout(10_000)

    async def refused() -> bool:
        answer = await window.page.evaluate(
            "fetch('/v1/kv/weather/late', {method: 'PUT', body: '1'}).then((answer) => answer.status)"
        )
        return bool(answer == 401)

    for _ in range(100):
        if await refused():
            break
        await window.page.wait_for_timeout(50)
    assert await refused()
    version = await console.store.kv("weather").get("late")
    await window.page.get_by_label("Keys").fill("1")
    await window.page.get_by_role("button", name="Try it").click()
    await window.page.get_by_role("heading", name="Log in").wait_for()
    assert await console.store.kv("weather").get("late") == version


async def test_a_link_to_a_reveal_reveals_nothing(console: Console, enter: Enter) -> None:
    """An address that asks for a reveal only shows the page: a person has to ask on the page itself."""
    window = await enter()
    async with site_of_another(
        f'<a id=bait href="{console.url}/ui/kv/trivia/player%3Aalan?reveal=1&why=bait">prize</a>'
    ) as attacker:
        await window.page.goto(attacker)
        await window.page.click("#bait")
        await window.page.wait_for_selector("main[aria-busy=false]")
    window.faults.clear()
    records = (await console.json("/ui/audit?namespace=kv%2Ftrivia&prefix=player%3Aalan"))["records"]
    assert [one for one in records if one["spec_ref"] == "bait"] == []


async def test_a_plugin_token_sees_no_neighbour(console: Console, enter: Enter) -> None:
    """A session of a plugin's token gets no page about other plugins or for operators."""
    made = await console.store.tokens().create(plugin="weather")
    window = await enter(made.token)
    for path in (
        "/ui/kv/trivia",
        "/ui/audit",
        "/ui/tokens",
        "/ui/settings",
        "/ui/tables/arcade",
        "/ui/blobs/media",
    ):
        answer = await window.page.request.get(f"{console.url}{path}", headers={"Accept": "application/json"})
        assert answer.status == 403, path
