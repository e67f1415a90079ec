"""The distribution: its name, what it contains, and that each extra is enough for what it promises."""
