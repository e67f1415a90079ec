"""Monitoring of a running service: metrics, gauges, logs and alerts."""
