"""The console edge: pages for operators on the HTTP port, and each of them as JSON."""
