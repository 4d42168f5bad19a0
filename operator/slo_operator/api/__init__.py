"""The InferenceSLO resource: its models, its schema and its way into the tuner's types."""
