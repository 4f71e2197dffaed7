"""`cruise webhook`: what pods are admitted under, kept up to date."""
