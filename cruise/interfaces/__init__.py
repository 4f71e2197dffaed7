"""Output for users and programs: tables, pages, API endpoints and metrics."""
