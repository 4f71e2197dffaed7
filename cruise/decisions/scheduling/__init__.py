"""kube-scheduler's filters for a pod and a node, evaluated on the cluster's objects."""
