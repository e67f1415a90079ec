"""The MCP edge: the verbs of the catalogue as tools for agents, and entries as resources."""
