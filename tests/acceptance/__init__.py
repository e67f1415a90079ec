"""What a user would try first, and what an operator would ask: whole programs against real stores."""
