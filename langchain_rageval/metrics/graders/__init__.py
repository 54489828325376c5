"""Graders: what says how relevant each retrieved chunk is, one per file; the ranking metrics take one each."""
