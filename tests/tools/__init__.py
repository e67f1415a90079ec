"""The tools of the repository itself: how it installs what it needs, and what it says it ships with."""
