"""A server on fastmcp with the skills of a directory, all of them or few on a page."""

import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension

directory, *size = sys.argv[1:]
provider = SkillsDirectoryProvider(Path(directory), experimental_skills=True)
server = FastMCP("skills", providers=[provider], list_page_size=int(size[0]) if size else None)
server.add_extension(SkillsExtension(providers=[provider]))
server.run("stdio", show_banner=False)
