"""What people and programs see: tables, pages, endpoints."""
