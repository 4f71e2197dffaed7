"""Long computations of commands: packing, replays and what-if runs."""
