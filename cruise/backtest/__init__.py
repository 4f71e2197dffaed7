"""What would have been: recorded usage replayed through the real decisions, beside what other tools would do."""
