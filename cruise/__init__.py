"""Continuous rightsizing of Kubernetes pods: gather, decide, apply."""

__version__ = "0.1.0"
