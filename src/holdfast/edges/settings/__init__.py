"""The settings of a running Holdfast: which there are, how they are read, and the pages about them."""
