"""Everything that runs, in rooms of their own; each may import those before it.

    runtime        the asyncio actor on Pykka, supervisors, clocks
    models         the message model and the providers (imports chord alone)
    session        storage actor, mutation line, transactions, documents, output gate
    task           task definitions, the scheduler, invocations
    conversation   transcripts, context, inbox, views, handles
    agent          registry, tools, generation, prompt, usage
    tools          tools that come with perdure
    system         puts the rooms together
    cli            the command line, which looks into stores from outside

Tests: tests/actors/, and tests/chaos/ for all of it together.
"""
