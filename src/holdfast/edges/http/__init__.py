"""The HTTP edge: the verbs of the catalogue, and liveness, readiness and metrics of the service."""
