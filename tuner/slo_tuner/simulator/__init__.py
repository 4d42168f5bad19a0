"""A small, seeded discrete-event simulation of a serving pipeline: the judge of the models and of the loop."""
