"""From statistics to the sizes of the pods of a node, and which of them are written now."""
