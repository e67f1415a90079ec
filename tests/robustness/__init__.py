"""What must hold when things go wrong: killed processes, full disks, cancelled callers, crowds."""
