"""The cluster engine: a replicated log in NATS JetStream, and a SQLite file on each node that follows it."""

from holdfast.engines.cluster.engine import ClusterEngine

__all__ = ["ClusterEngine"]
