"""EKS Auto Mode's resource optimisation, as far as it is documented."""
