"""How much room a node keeps above its pods' bases, so that their peaks find it."""
