"""Recipes where things go wrong: answers that are lost, storage that is away, callers that are cancelled."""
