"""Blobs: their manifests and the commands on them.

Law: pure. What a command does is decided in `holdfast.decide.blobs`.
"""
