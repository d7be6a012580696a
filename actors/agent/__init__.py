"""The agent: what answers input with a model and tools, as ordinary tasks.

    tool, output, results     tools from functions; bounded output; from what a tool did to what the model reads
    registry, prompt, usage   extensions; the system prompt as changes; the ledger
    pump, partials, slots     progress, throttled into ``pi.live``
    toolcontext, tooltask     what a tool holds; one call as a task
    summaries, thresholds     the words of a compaction; when a context is compacted, and how far
    compaction, room          a summary in the place of what is old, as a task; whether a request needs one
    generation                one model response and its tool round as a task

Built on what any user could import. Tests: tests/actors/agent/.
"""
