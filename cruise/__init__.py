"""Continuous rightsizing of Kubernetes pods."""

__version__ = "0.1.0"
