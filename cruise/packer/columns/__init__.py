"""Column generation: patterns of single nodes, linear bounds, branch and price, and annealing."""
