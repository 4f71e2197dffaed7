"""cruise's passes as a replay policy, in columns, and the registry of all policies."""
