"""A backtest as table, documents, page and pictures."""
