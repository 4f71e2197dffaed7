"""HTTP to the API server: connection, credentials, throttling, errors."""
