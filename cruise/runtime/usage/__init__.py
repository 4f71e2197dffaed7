"""The usage pass, and what it keeps between passes."""
