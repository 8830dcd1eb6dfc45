# CPU images. `docker build --target tool -t plmctl .` has all commands; the last stage serves the
# model in /model. The versions are those of constraints.txt. See docs/howto/containers.md.
FROM python:3.11-slim AS wheel
WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir -c constraints.txt hatchling
COPY . .
RUN pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /dist .

FROM python:3.11-slim AS tool
COPY constraints.txt /tmp/
COPY --from=wheel /dist /tmp/dist
# the index of PyTorch has the build without CUDA, which pip prefers
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    -c /tmp/constraints.txt "$(echo /tmp/dist/plmctl-*.whl)[serve,onnx]" \
 && useradd --create-home --uid 1000 plmctl \
 && install -d -o 1000 -g 1000 /work
# torch wants the name of the user, also of one that --user names by number
ENV USER=plmctl PLMCTL_CACHE=/tmp/plmctl
USER 1000
WORKDIR /work
ENTRYPOINT ["plmctl"]
CMD ["--help"]

FROM tool AS serve
EXPOSE 8000
HEALTHCHECK --start-period=60s --timeout=5s \
  CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
CMD ["serve", "/model", "host=0.0.0.0", "runtime=auto"]
