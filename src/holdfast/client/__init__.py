"""Clients of a running service: each encodes a command, sends it, and decodes the reply.

A client stores nothing and decides nothing.
"""
