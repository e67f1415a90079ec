"""The remote engine: a Holdfast service over NATS, as an engine."""

from holdfast.engines.remote.engine import RemoteEngine

__all__ = ["RemoteEngine"]
