"""The settings of a running Holdfast: their table, how they are read, and their reference pages."""
