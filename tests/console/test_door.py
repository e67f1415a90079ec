"""The door of the console: its pages as HTML and JSON, their headers, and who gets in."""

from __future__ import annotations

import gzip
import hashlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.edges.console import sessions as limits
from holdfast.edges.console.door import PAGES
from holdfast.edges.console.files import site
from holdfast.edges.console.sessions import BrowserSessions
from holdfast.edges.greeting import greeting
from holdfast.edges.settings.table import Config
from holdfast.errors import Busy
from tests.console.visiting import OWN_PAGE, log_in, page, refused
from tests.edges.running import get, holdfast_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.http.ground import Served


async def test_a_page_is_html_for_browsers_and_json_for_programs(here: Served) -> None:
    """One address has both; the HTML holds no data, and JSON is given to those who ask for it by name."""
    await here.store.kv("trivia").set("secret-key", "secret value")
    shown = await here.ask("GET", "/", Accept="text/html,*/*;q=0.8")
    assert shown.headers["content-type"].startswith("text/html")
    assert "trivia" not in shown.text
    assert (await here.ask("GET", "/", Accept="*/*")).headers["content-type"].startswith("text/html")
    found = await page(here, "/")
    assert found["page"] == (await page(here, "/ui"))["page"] == "overview"
    assert [one["namespace"] for one in found["namespaces"]] == ["kv/trivia"]
    assert "secret" not in str(found)


async def test_a_followed_link_never_gets_data(here: Served) -> None:
    """A navigation gets the page without data, even from another site; other requests of it are refused."""
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    link = {**elsewhere, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    followed = await here.client.get("/", headers=link | {"Accept": "application/json"})
    assert (followed.status_code, followed.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for headers in (elsewhere, link | {"Sec-Fetch-Dest": "iframe"}, link | {"Origin": "http://evil.example"}):
        asked = await here.client.get("/", headers=headers | {"Accept": "application/json"})
        assert asked.status_code == 403
    assert (await here.client.get("/v1/kv/trivia", headers=link)).status_code == 403


@pytest.mark.parametrize("path", ["/", "/ui/login", "/ui/nowhere", "/ui/static/x/app.js", "/ui/static/"])
async def test_headers_that_guard_a_page(here: Served, path: str) -> None:
    """No page may be framed, run a foreign or inline script, or send its address elsewhere."""
    response = await here.ask("GET", path, Accept="text/html")
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    if response.headers["content-type"].startswith("text/html"):
        assert not re.search(r"<script(?![^>]*src=)|<style|style=|https?://", response.text)


async def test_data_is_not_kept_and_files_are(here: Served) -> None:
    """JSON is never cached; a file is, since its address has its hash; the page is asked for anew."""
    data = await here.ask("GET", "/", Accept="application/json")
    assert data.headers["cache-control"] == "no-store"
    shell = await here.ask("GET", "/", Accept="text/html")
    assert shell.headers["cache-control"] == "no-cache"
    again = await here.ask("GET", "/", Accept="text/html", If_None_Match=shell.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    for path in re.findall(r'(?:src|href)="(/ui/static/[^"]+)"', shell.text):
        file = await here.ask("GET", path)
        assert (file.status_code, "immutable" in file.headers["cache-control"]) == (200, True), path
    assert (await here.ask("GET", "/ui/static/000000000000/app.js")).status_code == 404
    assert (await here.ask("GET", f"/ui/static/{site().tag}/../__init__.py")).status_code == 404


async def test_the_first_page_is_small(here: Served) -> None:
    """All files together, compressed, are under 150 KB, so that any first page is."""
    total = sum(len(file.zipped) for name, file in site().files.items() if not name.startswith("vendor/htm"))
    assert total + len(site().page("overview").zipped) < 150_000
    text = site().page("entry").plain.decode()
    assert all(f"{name}.js" in text for name in ("vendor/preact", "pages/entry", "parts/edit", "parts/json"))
    assert "pages/live.js" not in text
    file = await here.client.get(f"/ui/static/{site().tag}/app.js", headers={"Accept-Encoding": "gzip"})
    assert file.headers["content-encoding"] == "gzip"
    plain = await here.client.get(f"/ui/static/{site().tag}/app.js", headers={"Accept-Encoding": "identity"})
    assert gzip.decompress(site().files["app.js"].zipped) == plain.content


def test_vendored_files_are_those_that_are_named() -> None:
    """Every vendored file is listed with its hash, and none is there that is not listed."""
    folder = files("holdfast.edges.console").joinpath("static", "vendor")
    listed = dict(
        re.findall(
            r"^\| ([\w.-]+) .*\| ([0-9a-f]{64}) \|$", folder.joinpath("VENDOR.md").read_text(), re.MULTILINE
        )
    )
    held = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.iterdir()}
    held.pop("VENDOR.md")
    assert held == listed


async def test_only_reading_methods_on_pages(here: Served) -> None:
    """A page takes no writes, and HEAD has no body."""
    assert (await here.ask("POST", "/")).status_code == 405
    assert (await here.ask("DELETE", "/ui/kv")).headers["allow"] == "GET, HEAD"
    head = await here.ask("HEAD", "/", Accept="application/json")
    assert (head.status_code, head.content) == (200, b"")


async def test_an_unknown_page_is_a_404(here: Served) -> None:
    """There is a 404 both for browsers, which show it in the console, and for programs."""
    assert (await here.ask("GET", "/ui/nowhere", Accept="text/html")).status_code == 404
    status, problem = await refused(here, "/ui/nowhere")
    assert (status, problem["detail"]) == (404, "the console has no such page")


async def test_a_foreign_host_gets_nothing(here: Served) -> None:
    """A name that was pointed at this machine does not lead to the console."""
    for path in ("/", "/ui/login", f"/ui/static/{site().tag}/app.js"):
        assert (await here.ask("GET", path, Host="evil.example")).status_code == 421
    assert (await here.ask("POST", "/ui/login", {"once": "x"}, Host="evil.example")).status_code == 421


async def test_without_a_login_a_closed_service_shows_nothing(closed: Served) -> None:
    """The JSON of every page needs a token or a session; the HTML, which has no data, does not."""
    for one in PAGES:
        path = re.sub(
            r"\(\?P<(\w+)>[^)]*\)|\(\?:.*\)\?", lambda part: (part[1] and "x") or "", one.pattern.pattern
        )
        status, problem = await refused(closed, path)
        assert (status, problem["code"]) == (401, "PERMISSION_DENIED"), path
        assert (await closed.ask("GET", path, Accept="text/html")).status_code == 200


async def test_a_session_has_the_rights_of_its_token(closed: Served) -> None:
    """A cookie stands for the token: its plugin, its verbs, and nothing else."""
    made = await closed.store.tokens().create(plugin="trivia", verbs=["get", "list", "stats"])
    entered = await log_in(closed, token=f" {made.token} ")
    assert entered.status_code == 200
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie  # over plain HTTP a browser would drop it
    assert made.token not in cookie
    caller = (await page(closed, "/"))["caller"]
    assert (caller["kind"], caller["owner"], caller["verbs"]) == ("token", "trivia", ["get", "list", "stats"])
    assert (await closed.ask("GET", "/v1/kv/trivia")).status_code == 200
    assert (await closed.ask("GET", "/v1/kv/other")).status_code == 403
    wrote = await closed.client.put("/v1/kv/trivia/a", content=b"1", headers=OWN_PAGE)
    assert (wrote.status_code, "allows get, list, stats" in wrote.text) == (403, True)
    assert (await page(closed, "/"))["namespaces"][0]["namespace"] == "kv/trivia"


async def test_a_session_writes_only_from_a_page_of_the_service(closed: Served) -> None:
    """With a cookie alone nothing is written: the browser must say that a page of this origin asks."""
    made = await closed.store.tokens().create(plugin="trivia")
    await log_in(closed, token=made.token)
    own = {"Origin": closed.url}
    refused_headers: list[dict[str, str]] = [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"} | own,
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": closed.url.replace("127.0.0.1", "localhost")},
    ]
    for headers in refused_headers:
        wrote = await closed.client.put("/v1/kv/trivia/a", content=b"1", headers=headers)
        assert wrote.status_code == 403, headers
    assert await closed.store.kv("trivia").get("a") is None
    for headers in (OWN_PAGE, own):
        assert (await closed.client.put("/v1/kv/trivia/a", content=b"1", headers=headers)).status_code == 200
    bearer = {"Authorization": f"Bearer {made.token}"}
    assert (await closed.client.put("/v1/kv/trivia/a", content=b"2", headers=bearer)).status_code == 200


async def test_a_revoked_token_ends_its_sessions(closed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request of an open page is refused once the token is gone."""
    monkeypatch.setattr("holdfast.edges.http.guard.FRESH", 0.0)
    made = await closed.store.tokens().create(operator=True)
    await log_in(closed, token=made.token)
    assert (await page(closed, "/"))["caller"]["operator"]
    await closed.store.tokens().revoke(made.about.id)
    status, problem = await refused(closed, "/")
    assert (status, "the session has ended" in problem["detail"]) == (401, True)
    assert "needs a token" in (await refused(closed, "/"))[1]["detail"]


async def test_many_logins_end_no_session_of_others(closed: Served) -> None:
    """Who logs in again and again with one token ends own sessions, and none of an operator or a plugin."""
    tokens = closed.store.tokens()
    operator, other = await tokens.create(operator=True), await tokens.create(plugin="other")
    reader = await tokens.create(plugin="trivia", verbs=["get"])

    async def cookie_of(**fields: str) -> str:
        response = await log_in(closed, **fields)
        closed.client.cookies.clear()
        return response.headers["set-cookie"].partition(";")[0]

    mine = await cookie_of(once=closed.sessions.link())
    operators, others = await cookie_of(token=operator.token), await cookie_of(token=other.token)
    readers = [await cookie_of(token=reader.token) for _ in range(limits.MOST_SESSIONS + 1)]
    for cookie, status in (
        *((one, 200) for one in (mine, operators, others, readers[-1], readers[-limits.MOST_OF_ONE])),
        *((one, 401) for one in (readers[0], readers[-limits.MOST_OF_ONE - 1])),
    ):
        shown = await closed.ask("GET", "/ui/live", Accept="application/json", Cookie=cookie)
        assert shown.status_code in ((200, 403) if status == 200 else (401,)), shown.text


def test_other_sessions_end_before_those_of_operators() -> None:
    """When there are too many sessions in all, the one with the most loses one, and operators the last."""
    sessions = BrowserSessions()
    operators = [sessions.open(f"operator {number}", operator=True) for number in range(2)]
    greedy = [sessions.open("greedy") for _ in range(limits.MOST_OF_ONE)]
    while len(sessions) < limits.MOST_SESSIONS:
        sessions.open(f"plugin {len(sessions)}")
    sessions.open("one more")
    assert (sessions.find(greedy[0]), sessions.find(greedy[1])) == (None, "greedy")
    for number in range(limits.MOST_SESSIONS):
        sessions.open(f"next {number}")
    assert [sessions.find(one) for one in operators] == ["operator 0", "operator 1"]
    for number in range(limits.MOST_SESSIONS):
        sessions.open(f"operator {number + 2}", operator=True)
    with pytest.raises(Busy):
        sessions.open("no operator")
    assert len(sessions) == limits.MOST_SESSIONS


async def test_log_out_ends_the_session(closed: Served) -> None:
    """After logging out the cookie is worthless, also a copy of it."""
    made = await closed.store.tokens().create(operator=True)
    cookie = (await log_in(closed, token=made.token)).headers["set-cookie"].partition(";")[0]
    left = await closed.client.post("/ui/logout", headers=OWN_PAGE)
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert (await refused(closed, "/"))[0] == 401
    assert (await refused(closed, "/", Cookie=cookie))[0] == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"token": "hf_0000000000000000_" + "A" * 43}, 401),
        ({"token": "nonsense"}, 401),
        ({"once": "nonsense"}, 401),
        ({}, 400),
        ({"token": 7}, 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b'{"token": "' + b"x" * 5000 + b'"}', 413),
    ],
)
async def test_a_wrong_login_sets_no_cookie(closed: Served, body: object, status: int) -> None:
    """A wrong login says what was wrong and sets no cookie."""
    response = await closed.ask("POST", "/ui/login", body)
    assert response.status_code == status
    assert "set-cookie" not in response.headers


async def test_a_link_works_once(closed: Served) -> None:
    """Looking at a link does not use it up; logging in with it does, and a second time is refused."""
    once = closed.sessions.link()
    seen = await closed.ask("GET", f"/ui/login?once={once}", Accept="text/html")
    assert (seen.status_code, once in seen.text) == (200, False)
    assert (await log_in(closed, once=once)).status_code == 200
    caller = (await page(closed, "/"))["caller"]
    assert (caller["kind"], caller["operator"], caller["id"][:8]) == ("link", True, "console-")
    stolen = await log_in(closed, once=once)
    assert (stolen.status_code, "used before" in stolen.json()["detail"]) == (401, True)


async def test_an_operators_link_is_for_this_machine(closed: Served) -> None:
    """A session of a link holds no longer once a proxy passes its requests on."""
    await log_in(closed, once=closed.sessions.link())
    assert (await refused(closed, "/", X_Forwarded_For="10.1.1.1"))[0] == 401
    assert (await page(closed, "/"))["caller"]["kind"] == "link"


def test_links_and_sessions_end_by_themselves() -> None:
    """A link lives for ten minutes; a session ends when it is idle, when it is old, or for others."""
    now = [0.0]
    sessions = BrowserSessions(ticks=lambda: now[0])
    late = sessions.link()
    now[0] += limits.LINK_SECONDS + 1
    assert sessions.redeem(late) is None
    idle = sessions.open("token")
    now[0] += limits.IDLE_SECONDS + 1
    assert sessions.find(idle) is None
    old = sessions.open("token")
    while now[0] < 20 * limits.LIFE_SECONDS and sessions.find(old) is not None:
        now[0] += limits.IDLE_SECONDS - 1
    assert now[0] < 5 * limits.LIFE_SECONDS
    kept, *others = [sessions.open(f"token {number}") for number in range(limits.MOST_SESSIONS)]
    assert sessions.find(kept) == "token 0"
    sessions.open("one more")
    assert sessions.find(kept) == "token 0"
    assert sessions.find(others[0]) is None
    links = [sessions.link() for _ in range(limits.MOST_LINKS + 1)]
    assert sessions.redeem(links[0]) is None
    assert sessions.redeem(links[-1]) is not None


async def test_in_open_mode_no_login_is_needed(here: Served) -> None:
    """On this machine an open service shows everything, and the page says that it is open."""
    assert (await page(here, "/"))["caller"]["kind"] == "open"
    assert (await refused(here, "/", X_Forwarded_For="10.1.1.1"))[0] == 401
    made = await here.store.tokens().create(plugin="trivia", verbs=["list", "stats"])
    await log_in(here, token=made.token)
    assert (await page(here, "/"))["caller"]["owner"] == "trivia"
    assert (await here.ask("GET", "/v1/kv/trivia/a")).status_code == 403


async def test_the_console_can_be_switched_off(tmp_path: Path) -> None:
    """With --no-console, `holdfast up` has no console and does not name one."""
    async with holdfast_up(tmp_path, "--no-console") as up:
        assert not any(line.startswith("Look") for line in up.said)
        assert (await get(up.http_port, "/"))[0] == 404
        assert (await get(up.http_port, "/ui/login"))[0] == 404


def test_up_prints_a_link_only_on_a_terminal_that_needs_a_login() -> None:
    """A terminal gets a link that works once where a login is needed; elsewhere no secret is printed."""
    on: dict[str, Any] = {"db": "x", "data_dir": "y"}
    secret = "the-secret"
    closed: dict[str, Any] = {"nats": "nats://x", "reply_mode": "permissions"}

    def said(once: str | None, **more: Any) -> str:
        return "\n".join(greeting(Config(**on, **more), "nats://x", [], once=once))

    assert "Look  http://127.0.0.1:8420/ (it needs no login on this machine)" in said(secret)
    assert f"Look  http://127.0.0.1:8420/ui/login?once={secret}" in said(secret, **closed)
    assert "Look  http://127.0.0.1:8420/ (log in with a token)" in said(None, **closed)
    away = said(secret, http_host="10.0.0.1", http_tls_cert="c", **closed)
    assert "Look  https://10.0.0.1:8420/ (log in with a token)" in away
    assert secret not in said(secret) + away
    assert "Look" not in said(secret, console=False)
