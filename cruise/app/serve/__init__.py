"""`cruise serve`: the controller, its jobs, its leadership, its HTTP server."""
