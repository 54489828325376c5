"""Text processing: sentence splitting, language detection, normalization and stemming."""
