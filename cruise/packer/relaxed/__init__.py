"""Lagrangian bounds at any size: nodes are solved separately, and prices of pods couple them."""
