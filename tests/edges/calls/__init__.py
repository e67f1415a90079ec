"""Tests of the catalogue of verbs."""
