"""A backtest as table, JSON, YAML, CSV, HTML page and charts."""
