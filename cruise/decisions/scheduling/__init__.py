"""What kube-scheduler says of a pod and a node, read from the cluster's own objects."""
