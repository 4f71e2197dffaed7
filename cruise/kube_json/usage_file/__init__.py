"""UsageStatistics files."""
