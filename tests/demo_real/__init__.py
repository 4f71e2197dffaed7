"""cruise on a real control plane, for a person to look at: `make demo-real`."""
