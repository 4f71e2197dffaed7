"""CruiseKube, from its code."""
