"""The MCP edge, driven by the official client."""
