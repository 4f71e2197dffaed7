"""Problems whose pods are free of each other: classes on nodes, solved by column generation."""
