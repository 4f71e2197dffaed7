"""Packing plans as tables and documents."""
