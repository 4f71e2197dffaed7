"""What holds for a pod: whether it may be touched, its overrides, and the bounds that its namespace sets."""
