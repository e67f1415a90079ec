"""The commands of the command line, one file each or one for a few related ones."""
