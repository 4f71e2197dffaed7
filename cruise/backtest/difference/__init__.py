"""Two configurations over one recording: how far apart they are, and how sure that is."""
