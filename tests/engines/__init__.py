"""What is particular to one engine, behind the store: files, locks, connections, driver errors."""
