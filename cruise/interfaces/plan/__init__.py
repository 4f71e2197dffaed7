"""Node plans as tables and documents."""
