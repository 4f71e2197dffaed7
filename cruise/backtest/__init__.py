"""Backtests: recorded usage replayed through the real decisions, compared with the policies of other tools."""
