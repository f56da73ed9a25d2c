"""A trivial MCP server that is never the bottleneck: `python bench/upstream stdio|http ERA TOOLS [PORT]`.

Nothing but the standard library over stdio, so that it starts in 20 ms; uvloop besides over HTTP.
"""

import sys

from answers import Answers


def main() -> None:
    transport, era, tools, *port = sys.argv[1:]
    answers = Answers(era, int(tools))
    if transport == "stdio":
        import lines

        lines.serve(answers)
    else:
        import pages

        pages.serve(answers, int(port[0]) if port else 0)


main()
