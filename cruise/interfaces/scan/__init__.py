"""A scan as table, documents and page."""
