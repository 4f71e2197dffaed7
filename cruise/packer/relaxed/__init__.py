"""What no packing surpasses, at any size: each node on its own, held together by prices."""
