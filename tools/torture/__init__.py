"""Torture for stores that keep the state of agents: several workers, stops, kills and writes sent twice."""
