"""The webhook's certificate: issued, stored, renewed, published to the API server."""
