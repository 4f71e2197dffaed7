"""The cluster kept in step with the API server by lists and watches."""
