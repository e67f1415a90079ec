"""What a running service shows of itself: metrics, gauges, logs and alerts."""
