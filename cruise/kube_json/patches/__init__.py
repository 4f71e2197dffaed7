"""Patches that cruise sends."""
