"""What a pod asks for when it is created, and while it waits for a node."""
