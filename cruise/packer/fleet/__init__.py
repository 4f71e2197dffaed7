"""The least price of nodes that hold everything: emptying nodes one after the other, and what bounds that."""
