"""Data types shared by all layers, and how they are read from objects, files and chains."""
