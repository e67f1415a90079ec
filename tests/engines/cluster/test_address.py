"""The URL of a cluster: what it says, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.engines.cluster.address import cluster_address
from holdfast.errors import ValidationError


def test_a_url_with_nothing_but_servers_and_a_name() -> None:
    """Three servers keep three copies; the replica is beside the program, in a folder named for the store."""
    found = cluster_address("cluster://h1, h2:4333,h3/store-1")
    assert found.servers == ["nats://h1", "nats://h2:4333", "nats://h3"]
    assert (found.name, found.data, found.stream) == ("store-1", Path("store-1.replica"), "HF_store-1")
    assert (found.replicas, found.shards, found.timeout, found.snapshot_every) == (3, 1, 10, 50_000)
    assert (found.local_reads, found.allow_lazy_sync, found.monitor, found.peers) == (
        False,
        False,
        (8222,),
        (),
    )
    assert found.subject("log", 2) == "hf.store-1.log.2"
    assert cluster_address("cluster://h1,h2/s").replicas == 1


def test_every_option_is_read() -> None:
    """Each says what it is for, and none is mistaken for another."""
    found = cluster_address(
        "cluster://h1,h2/s?data=/var/x&timeout=7&shards=4&replicas=5&reads=local&snapshot_every=0"
        "&monitor=1,2&peers=h3,%20h4&allow_lazy_sync=true"
    )
    assert (found.data, found.timeout, found.shards, found.replicas) == (Path("/var/x"), 7, 4, 5)
    assert (found.local_reads, found.allow_lazy_sync, found.snapshot_every) == (True, True, 0)
    assert (found.monitor, found.peers) == ((1, 2), ("h3", "h4"))


@pytest.mark.parametrize(
    "url",
    [
        "cluster:///s",
        "cluster://,/s",
        "cluster://h1",
        "cluster://h1/",
        "cluster://h1/a.b",
        "cluster://h1/a/b",
        "cluster://h1/" + "x" * 33,
        "cluster://h1/s?dance=1",
        "cluster://h1/s?shards=0",
        "cluster://h1/s?replicas=6",
        "cluster://h1/s?timeout=",
        "cluster://h1/s?timeout=-1",
        "cluster://h1/s?reads=yes",
        "cluster://h1/s?allow_lazy_sync=1",
        "cluster://h1,h2,h3/s?monitor=1,2",
        "cluster://h1/s?monitor=0",
    ],
)
def test_a_url_that_is_wrong_is_refused(url: str) -> None:
    """Nothing is guessed, and the refusal is about the URL."""
    with pytest.raises(ValidationError) as refused:
        cluster_address(url)
    assert refused.value.field == "url"


def test_a_refusal_does_not_show_a_password() -> None:
    """What may be a part of a password is masked in the message about an unknown option."""
    with pytest.raises(ValidationError) as refused:
        cluster_address("cluster://user:pass@h1/s?secret=1")
    assert "pass" not in refused.value.message
