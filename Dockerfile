# The hub over HTTP: `docker build -t mcp-hub .`; docs/install.md says how to run it.
FROM python:3.13-slim-bookworm AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# What the locks name, by their hashes and without resolution, as scripts/setup installs it.
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/mcp-hub \
    && /opt/mcp-hub/bin/python -m pip install --require-hashes --no-deps --only-binary :all: -r requirements.lock \
    && python -m venv /opt/build \
    && /opt/build/bin/python -m pip install --require-hashes --no-deps --only-binary :all: -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY mcp_hub ./mcp_hub
RUN /opt/build/bin/python -m hatchling build -t wheel -d /wheel \
    && /opt/mcp-hub/bin/python -m pip install --no-deps --no-index /wheel/*.whl \
    && /opt/mcp-hub/bin/python -m pip check

FROM python:3.13-slim-bookworm
COPY --from=build /opt/mcp-hub /opt/mcp-hub
# Writable for any user, as the owner of the configuration is often given with --user.
RUN useradd --uid 10001 --no-create-home --home-dir /home/hub hub && install -d -m 1777 /home/hub
ENV PATH=/opt/mcp-hub/bin:$PATH HOME=/home/hub PYTHONDONTWRITEBYTECODE=1
WORKDIR /home/hub
USER 10001
EXPOSE 8808
HEALTHCHECK --interval=30s --timeout=5s --start-period=15s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8808/healthz', timeout=4)"]
ENTRYPOINT ["mcp-hub"]
CMD ["serve", "--http", "--host", "0.0.0.0", "--config", "/etc/mcp-hub/servers.yaml"]
