"""The nouns of cruise: plain frozen data shared by every layer, without I/O, clock or randomness."""
