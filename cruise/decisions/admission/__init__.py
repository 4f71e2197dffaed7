"""The requests of a pod at its creation, and while it is unschedulable."""
