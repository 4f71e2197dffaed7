"""What is written to the cluster: actions on pods and nodes, Events."""
