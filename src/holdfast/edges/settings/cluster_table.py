"""The settings of a machine in a cluster; `holdfast.edges.settings.table` says what a setting is.

Law: as there. They are a part of the table, in a file of their own.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from holdfast.edges.settings.parts import About, Port


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `holdfast up --cluster`."""

    cluster: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,32}\Z")] | None,
        About(
            "cluster.name",
            "Name of a cluster that this machine is part of. Holdfast then starts a NATS server with "
            "JetStream and keeps a replica of the store in the data folder.",
            form="1 to 32 letters, digits, hyphens and underscores",
            flag=True,
        ),
    ] = None
    peers: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+(:[0-9]{1,5})?\Z")], ...],
        About(
            "cluster.peers",
            "The other machines of the cluster, separated by commas, each with the port of its routes if "
            "that is not 6222. Two of them make a cluster of three.",
            form="a list of host names, each with a port if needed",
            flag=True,
        ),
    ] = ()
    cluster_host: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9_.:-]+\Z"),
        About("cluster.host", "Address on which the NATS server listens for the other machines.", flag=True),
    ] = "0.0.0.0"
    cluster_port: Annotated[
        Port,
        About("cluster.port", "Port on which the NATS server listens for the other machines.", flag=True),
    ] = 6222
    cluster_secret: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{16,200}\Z")] | None,
        About(
            "cluster.secret",
            "Secret that the machines of a cluster share, the same on each of them.",
            form="16 to 200 letters, digits, hyphens and underscores",
        ),
    ] = None
    allow_lazy_sync: Annotated[
        bool,
        About(
            "cluster.allow_lazy_sync",
            "Have the NATS server acknowledge writes before its disk has them, and accept servers of a "
            "cluster:// URL that do so. That is faster, but writes of the last minutes that were "
            "acknowledged are lost if all machines lose power at once.",
            flag=True,
        ),
    ] = False
    cluster_tls_ca: Annotated[
        str | None,
        About("cluster.tls_ca", "File with the CA certificates that vouch for the machines of a cluster."),
    ] = None
    cluster_tls_cert: Annotated[
        str | None,
        About("cluster.tls_cert", "File with this machine's certificate, for the other machines."),
    ] = None
    cluster_tls_key: Annotated[
        str | None, About("cluster.tls_key", "File with the private key of that certificate.")
    ] = None


LAST: Final = ClusterSettings.__struct_fields__
"""The names of these settings, which come last in the table."""
