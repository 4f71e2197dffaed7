"""Why a pod has its numbers, what happened to it before, and what its owner reads about it."""
