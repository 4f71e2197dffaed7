"""The packing solver: assigns pods to nodes and proves bounds, on integer arrays without any Kubernetes types."""
