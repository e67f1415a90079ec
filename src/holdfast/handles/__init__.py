"""Handles for programs: keys, tables, and the recipes that are built on them.

A handle is bound to one namespace. It turns calls into commands and decides nothing.
"""
