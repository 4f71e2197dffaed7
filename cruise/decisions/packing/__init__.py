"""From a cluster to a packing problem, and from its answer to a plan that is judged, explained and carried out."""
