"""`evaluate`, `aevaluate`, `astream_evaluate` and `plan`: options, inputs, scheduling, journal and cost estimate."""
