"""Whether cruise can work in a cluster: one item per check, with its fix."""
