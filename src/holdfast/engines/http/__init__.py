"""The HTTP engine: a Holdfast service over HTTP, as an engine."""

from holdfast.engines.http.engine import HttpEngine

__all__ = ["HttpEngine"]
