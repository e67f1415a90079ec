"""The settings of a running Holdfast: their table, and how they are read."""
