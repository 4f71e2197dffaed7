"""The packing pass, the process that solves, and the execution of a plan."""
