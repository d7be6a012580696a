"""The command line: looking into a store from outside, whether its owner is alive or dead, and talking to an agent.

    picture     what a store and its sessions look like now, as plain values
    screen      pictures as text, for people
    app         the system that a command runs, as --app describes it
    chat        a conversation in the terminal; keys are what is typed, talk is what is shown
    commands    the commands, their options and exit codes

What looks from outside reads only, and only what storage stores: it knows no code of agents or tools.
Tests: tests/actors/cli/.
"""
