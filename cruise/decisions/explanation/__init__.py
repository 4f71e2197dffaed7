"""How the decisions about a pod and its node were made, for `explain`."""
