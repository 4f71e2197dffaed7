"""The policy of a pod: whether it is resizable and evictable, and the bounds of its sizes."""
