"""Pure decisions: immutable data in, decisions with their reasons out."""
