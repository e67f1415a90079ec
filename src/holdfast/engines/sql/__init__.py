"""What the SQL engines share: the schema, its migrations and the ORM model."""
