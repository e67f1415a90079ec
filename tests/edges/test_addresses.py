"""The URL of a service, as the settings describe it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.bus.address import nats_address
from holdfast.edges.settings.addresses import public_url, service_url
from holdfast.edges.settings.read import read_config


@pytest.mark.parametrize(
    ("settings", "servers", "url"),
    [
        ({}, "nats://a:1", "nats://a:1"),
        ({}, "a:1, tls://b", "nats://a:1,tls://b"),
        ({"nats_user": "u", "nats_password": "p/@"}, "a", "nats://u:p%2F%40@a"),
        ({"nats_token": "t?"}, "a,nats://x:y@b", "nats://t%3F@a,nats://x:y@b"),
        ({"nats_creds": "/c d", "nats_tls_first": True}, "a", "nats://a?creds=%2Fc+d&tls_first=true"),
        ({"subject_prefixes": "my.db,db"}, "a", "nats://a?prefix=my.db"),
    ],
)
def test_the_url_of_a_service(settings: dict[str, Any], servers: str, url: str) -> None:
    """What a service logs in with, a command logs in with too."""
    assert service_url(read_config(environment={}, **settings), servers) == url
    nats_address(url)


def test_a_public_url_has_no_secrets() -> None:
    """A URL that is told to others has no password, token or user in it."""
    config = read_config(environment={}, nats_password="p", nats_user="u", subject_prefixes="x")
    assert public_url(config, "nats://u:p@a:1, tls://t@b, c") == "nats://a:1,tls://b,nats://c?prefix=x"
