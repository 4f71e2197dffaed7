"""Each kind of object, from its wire form to the domain."""
