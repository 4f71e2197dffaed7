"""Which pods leave a node that cannot hold them all."""
