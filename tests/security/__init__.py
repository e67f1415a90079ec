"""Isolation on the bus, tried with real credentials against a real server."""
