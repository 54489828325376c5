"""Data types shared by all layers, and functions that read them from objects, files and chains."""
