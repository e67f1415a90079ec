"""Blobs: their manifests and the commands on them.

Nothing here reads or writes. `holdfast.decide.blobs` decides what a command does.
"""
