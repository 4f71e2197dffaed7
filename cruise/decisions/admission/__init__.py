"""What a pod requests when it is created, and while it is unschedulable."""
