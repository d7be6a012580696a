"""The command line: looking into a store from outside, whether its owner is alive or dead.

    picture     what a store and its sessions look like now, as plain values
    screen      pictures as text, for people
    commands    the commands, their options and exit codes

Reads only, and only what storage stores: it knows no code of agents or tools. Tests: tests/actors/cli/.
"""
