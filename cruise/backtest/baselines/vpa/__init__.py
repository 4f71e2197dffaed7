"""The Vertical Pod Autoscaler, from its code."""
