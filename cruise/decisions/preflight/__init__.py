"""Whether cruise can work in a cluster, item by item with the fix."""
