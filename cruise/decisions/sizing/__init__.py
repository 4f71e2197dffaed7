"""From statistics to the sizes of the pods of a node, and to the resizes that are written."""
