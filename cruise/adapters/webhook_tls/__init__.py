"""The webhook's certificate: made, kept, stored, published to the API server."""
