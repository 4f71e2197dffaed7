"""Recommendations for templates in the forms in which people keep manifests."""
