"""What may be done to a pod: whether it is resizable and evictable, and the bounds of its sizes."""
