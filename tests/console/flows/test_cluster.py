"""A cluster in a browser: servers, roles, the quorum, and a node and a server that are gone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from playwright.async_api import expect

from holdfast.engines.cluster.address import cluster_address
from tests.browser import AXE
from tests.cluster import Nodes, lose_node
from tests.edges.http.ground import served
from tests.jetstream import servers_running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser_fixtures import OpenWindow


async def test_a_node_and_a_server_that_are_gone(tmp_path: Path, open_window: OpenWindow) -> None:
    """The page shows who keeps the log and who writes; what dies is named, and the quorum that is left."""
    async with servers_running(3) as servers, contextlib.AsyncExitStack() as stack:
        nodes = Nodes(servers, tmp_path, stack)
        address = cluster_address(nodes.url(1))
        bus = f"nats://127.0.0.1:{servers.servers[0].port}"
        async with served(nodes.url(1), bus, cluster=address) as here:
            await here.store.kv("trivia").set("a", 1)
            other = await nodes.open(2)
            await other.kv("trivia").get("a")
            window = await open_window(here.url)
            page = await window.open("/")
            await page.get_by_role("link", name="Cluster").click()
            await expect(page.locator("h1")).to_have_text(f"Cluster {nodes.name}")
            await expect(page.locator(".quorum")).to_contain_text("3 of 3 servers are there")
            await expect(page.locator(".quorum")).to_contain_text("A write needs 2. 1 more may go")
            rows = page.locator("section:has(#servers) tbody tr")
            await expect(rows).to_have_count(3)
            await expect(rows.filter(has_text="leader")).to_have_count(1)
            members = page.locator("section:has(#nodes) tbody tr")
            await expect(members).to_have_count(2)
            await expect(members.filter(has_text="writes")).to_have_count(1)
            assert not AXE.exists() or await window.obstacles() == []
            await lose_node(other)
            await expect(members.filter(has_text="gone")).to_have_count(1)
            servers.kill(2)
            await expect(page.locator(".quorum")).to_contain_text("2 of 3 servers are there")
            await expect(page.locator(".quorum")).to_contain_text("Not one more may go")
            await expect(rows.filter(has_text="gone")).to_contain_text("server-2")
            await expect(page.locator(".attention")).to_contain_text("the NATS server server-2")
            await page.goto(f"{here.url}/")
            await expect(page.locator("section:has(#attention)")).to_contain_text("the NATS server server-2")
            await page.get_by_role("link", name="Show the cluster").first.click()
            servers.kill(1)
            await expect(page.locator(".quorum")).to_contain_text("no quorum")
            await expect(page.locator("section", has_text="Instances")).to_contain_text("this one")
            await servers.start_again(1)
            await expect(page.locator(".quorum")).to_contain_text("2 of 3 servers are there")
