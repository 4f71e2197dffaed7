"""The packing pass, the solver process, and the execution of plans."""
