"""Real packages of npm and PyPI, made and served on loopback: small servers without dependencies."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.registry.loopback import Loopback

JAVASCRIPT = """#!/usr/bin/env node
const tools = TOOLS;
const answers = {
  initialize: (p) => ({
    protocolVersion: p.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: 'small', version: 'VERSION'},
  }),
  ping: () => ({}),
  'tools/list': () => ({tools}),
  'tools/call': (p) => ({content: [{type: 'text', text: p.name + ' ' + process.argv.slice(2).join(' ')}]}),
};
require('readline').createInterface({input: process.stdin}).on('line', (line) => {
  const {id, method, params} = JSON.parse(line);
  if (id === undefined) return;
  const said = answers[method];
  const body = said ? {result: said(params || {})} : {error: {code: -32601, message: 'no such method'}};
  process.stdout.write(JSON.stringify({jsonrpc: '2.0', id, ...body}) + '\\n');
});
"""
PYTHON = """import json, sys

tools = TOOLS


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            said = {"result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                               "serverInfo": {"name": "small", "version": "VERSION"}}}
        elif method in ("ping", "tools/list"):
            said = {"result": {"tools": tools} if method == "tools/list" else {}}
        else:
            said = {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""


def _tools(names: Mapping[str, str]) -> str:
    listed = [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in names.items()]
    return json.dumps(listed)


def publish_npm(loopback: Loopback, name: str, versions: Mapping[str, Mapping[str, str]]) -> None:
    """Publishes versions of a package of npm: version -> its tools, each with its description. The last is `latest`."""
    manifests = {}
    for version, tools in versions.items():
        manifest = {"name": name, "version": version, "bin": {name.rpartition("/")[2]: "server.js"}}
        source = JAVASCRIPT.replace("TOOLS", _tools(tools)).replace("VERSION", version)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path, text, mode in (("package.json", json.dumps(manifest), 0o644), ("server.js", source, 0o755)):
                member = tarfile.TarInfo(f"package/{path}")
                member.size, member.mode = len(text.encode()), mode
                archive.addfile(member, io.BytesIO(text.encode()))
        content = packed.getvalue()
        at = f"/tarballs/{name.replace('/', '-')}-{version}.tgz"
        loopback.paths[at] = content
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
        manifests[version] = {**manifest, "dist": {"tarball": loopback.base + at, "integrity": integrity}}
    packument = {"name": name, "dist-tags": {"latest": list(versions)[-1]}, "versions": manifests}
    for path in (f"/{name}", f"/{name.replace('/', '%2F')}", f"/{name.replace('/', '%2f')}"):
        loopback.paths[path] = json.dumps(packument).encode()


def publish_pypi(loopback: Loopback, name: str, versions: Mapping[str, Mapping[str, str]]) -> None:
    """Publishes versions of a package of PyPI, whose program is named as it is."""
    files = []
    module = name.replace("-", "_")
    for version, tools in versions.items():
        info = f"{module}-{version}.dist-info"
        source = PYTHON.replace("TOOLS", _tools(tools)).replace("VERSION", version)
        members = {
            f"{module}.py": source,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
        }
        record = "".join(f"{path},,\n" for path in [*members, f"{info}/RECORD"])
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path, text in {**members, f"{info}/RECORD": record}.items():
                archive.writestr(path, text)
        filename = f"{module}-{version}-py3-none-any.whl"
        loopback.paths[f"/files/{filename}"] = packed.getvalue()
        digest = hashlib.sha256(packed.getvalue()).hexdigest()
        files.append({"filename": filename, "url": f"{loopback.base}/files/{filename}", "hashes": {"sha256": digest}})
    project = {"meta": {"api-version": "1.0"}, "name": name, "files": files}
    loopback.paths[f"/simple/{name}/"] = json.dumps(project).encode()
    loopback.types[f"/simple/{name}/"] = "application/vnd.pypi.simple.v1+json"


def use_indexes(loopback: Loopback, home: Path) -> None:
    """Sets npx and uvx of the user whose home this is to the packages on loopback."""
    (home / ".npmrc").write_text(f"registry={loopback.base}/\nupdate-notifier=false\naudit=false\nfund=false\n")
    (home / ".config/uv").mkdir(parents=True, exist_ok=True)
    (home / ".config/uv/uv.toml").write_text(f'[[index]]\nurl = "{loopback.base}/simple"\ndefault = true\n')
