"""The whole product in one thread and in virtual time, decided by one seed."""
