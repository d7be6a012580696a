"""What a page in a browser would do with a watch, and nothing of this library: the process of test_replica_process.py.

Reads JSON lines: ``{"attach": value}`` begins anew, ``{"ops": wire}`` is a batch of operations in their wire form, and
``{"tell": true}`` asks for the value, which is written as a line. Written from the description of the format alone.
"""

import json
import sys


class Page:
    def __init__(self):
        self.value = None
        self.paths = {}

    def attach(self, value):
        self.value = value
        self.paths = {}

    def take(self, wire):
        previous = None
        for op in wire:
            if op[0] == "#":
                self.paths[op[1]] = op[2]
            elif op[0] == "r":
                self.attach(op[1])
                previous = None
            else:
                previous, rest = self._path(op, previous)
                self._apply(op[0], previous, rest)

    def _path(self, op, previous):
        takes = {"s": 1, "d": 0, "a": 1, "t": 1, "p": 3, "m": 1}[op[0]]
        if len(op) == takes + 1:
            return previous, op[1:]
        path = op[1] if isinstance(op[1], list) else self.paths[op[1]]
        return path, op[2:]

    def _apply(self, verb, path, rest):
        if verb in ("p", "m"):
            self._list(verb, self._node(path), rest)
            return
        parent, key = self._node(path[:-1]), path[-1]
        if verb == "s":
            if isinstance(parent, list) and key == len(parent):
                parent.append(rest[0])
            else:
                parent[key] = rest[0]
        elif verb == "d":
            del parent[key]
        elif verb == "a":
            parent[key] += rest[0]
        else:
            units = parent[key].encode("utf-16-le", "surrogatepass")
            parent[key] = units[2 * rest[0] :].decode("utf-16-le", "surrogatepass")

    def _list(self, verb, node, rest):
        if verb == "p":
            at, count, items = rest
            node[at : at + count] = items
        else:
            node[:] = [node[index] for index in rest[0]]

    def _node(self, path):
        node = self.value
        for key in path:
            node = node[key]
        return node


def main():
    page = Page()
    for line in sys.stdin:
        message = json.loads(line)
        if "attach" in message:
            page.attach(message["attach"])
        elif "ops" in message:
            page.take(message["ops"])
        else:
            sys.stdout.write(json.dumps(page.value) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
