"""A real server with resource templates over stdio, of FastMCP or of the SDK, as its first argument says."""

import sys

library = sys.argv[1]
if library == "fastmcp":
    from fastmcp import FastMCP

    server = FastMCP("templates")

    @server.resource("file:///{path*}")
    def path(path: str) -> str:
        return f"path {path}"

    @server.resource("docs://{section}/{name}")
    def page(section: str, name: str) -> str:
        return f"page {section} {name}"

    @server.resource("search://pages{?q,lang}")
    def search(q: str = "-", lang: str = "-") -> str:
        return f"search {q} {lang}"

    @server.resource("tree://{root}/in/{rest*}")
    def tree(root: str, rest: str) -> str:
        return f"tree {root} {rest}"

    @server.resource("menu://café/{dish}")
    def menu(dish: str) -> str:
        return f"menu {dish}"

    server.run("stdio", show_banner=False)
else:
    from mcp.server.mcpserver import MCPServer

    sdk = MCPServer("templates")

    @sdk.resource("file:///{+path}")
    def reserved(path: str) -> str:
        return f"path {path}"

    @sdk.resource("docs://{section}/{name}")
    def part(section: str, name: str) -> str:
        return f"page {section} {name}"

    @sdk.resource("search://pages{?q,lang}")
    def query(q: str = "-", lang: str = "-") -> str:
        return f"search {q} {lang}"

    @sdk.resource("tree://all{/segments*}")
    def segments(segments: list[str]) -> str:
        return f"tree {' '.join(segments)}"

    @sdk.resource("image://{name}{.ext}")
    def image(name: str, ext: str) -> str:
        return f"image {name} {ext}"

    @sdk.resource("point://at{;x,y}")
    def point(x: str, y: str) -> str:
        return f"point {x} {y}"

    @sdk.resource("book://one{#part}")
    def book(part: str) -> str:
        return f"book {part}"

    sdk.run("stdio")
