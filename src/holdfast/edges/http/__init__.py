"""The HTTP edge: whether the service is alive and ready, and how it is doing."""
