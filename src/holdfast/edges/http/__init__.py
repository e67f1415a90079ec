"""The HTTP edge: liveness, readiness and metrics of the service."""
