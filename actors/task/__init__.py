"""Tasks: durable state machines, written as classes with phases.

    definition, steps     how a task is written; the decisions between its phases, as pure functions
    tx, ref, run          transactions that know tasks; a handle; what a task's code holds
    engine, actor         who runs when; the actor of one invocation
    standing, events      how tasks stand, for people who look; what is logged

What follows from a task's change for others is decided in ``supervisors``. Tests: tests/actors/task/.
"""
