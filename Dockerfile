# Draftline's commands and server. For the CPU:     docker build -t draftline .
# For NVIDIA cards, with torch's build for CUDA:    docker build -t draftline:cuda --target cuda .
# More of pyproject.toml's extras: --build-arg EXTRAS=embed,ocr. docs/containers.md says how to run
# the images.

# constraints.txt is resolved on this version.
ARG PYTHON=3.11

FROM python:${PYTHON}-bookworm AS tools
ENV PATH=/opt/draftline/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY constraints.txt ./
RUN python -m venv /opt/draftline \
    && pip install --constraint constraints.txt pip

FROM tools AS wheel
# The context has no history to take a version from.
ARG SETUPTOOLS_SCM_PRETEND_VERSION
COPY . .
RUN pip wheel --no-deps --build-constraint constraints.txt --wheel-dir /wheels .

# The default model, and any other GGUF file, runs on a CPU without torch.
FROM tools AS packages-cpu
ARG EXTRAS
COPY --from=wheel /wheels /wheels
RUN pip install --constraint constraints.txt "$(echo /wheels/draftline-*.whl)[page${EXTRAS:+,$EXTRAS}]"

# torch has a layer of its own, which a change of Draftline does not build again.
FROM tools AS packages-cuda
RUN pip install --constraint constraints.txt "torch===$(sed -n 's/^torch==//p' constraints.txt)"
ARG EXTRAS
COPY --from=wheel /wheels /wheels
RUN pip install --constraint constraints.txt "$(echo /wheels/draftline-*.whl)[page,gpu${EXTRAS:+,$EXTRAS}]"

FROM python:${PYTHON}-slim-bookworm AS server
RUN groupadd --gid 10001 draftline \
    && useradd --uid 10001 --gid 10001 --no-log-init --create-home --home-dir /data draftline
ENV PATH=/opt/draftline/bin:$PATH HOME=/data DRAFTLINE_HOME=/data/draftline
USER 10001:10001
WORKDIR /data
# Models, indexes and documents. A named volume takes over the owner; a folder of the host that is
# mounted here must belong to user 10001.
VOLUME /data
EXPOSE 8000
# SIGTERM does not reach a process 1 that has not asked for it yet; SIGINT is asked for at once.
STOPSIGNAL SIGINT
# 503 while the model loads. Not through a proxy of the environment.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10m CMD ["python", "-c", "from urllib.request import ProxyHandler, build_opener; build_opener(ProxyHandler({})).open('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["draftline"]
CMD ["serve", "--host", "0.0.0.0"]

FROM server AS cuda
USER 0:0
# Triton compiles a launcher for each kernel.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=packages-cuda /opt/draftline /opt/draftline
USER 10001:10001

FROM server AS cpu
COPY --from=packages-cpu /opt/draftline /opt/draftline
