"""Explanations as text and documents."""
