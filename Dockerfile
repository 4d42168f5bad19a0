# The operator, which is also the init container that merges tuned settings (python -m slo_operator.overlay).
FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="InferenceSLO operator" \
      org.opencontainers.image.licenses="Apache-2.0"
# Everything from the lock, by hash; the packages of this repository are plain Python and need no build.
# Two thirds of it are then left out: the second, asynchronous copy of the Kubernetes client, and all of
# Triton's client but its messages and stubs, with the numerics that only its tensors need.
COPY requirements.lock /tmp/
RUN python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes --no-compile \
      --target /opt/inferenceslo -r /tmp/requirements.lock \
 && cd /opt/inferenceslo \
 && rm -rf /tmp/requirements.lock bin kubernetes/aio numpy* ml_dtypes* rapidjson* python_rapidjson* \
 && find tritonclient -type f ! -path 'tritonclient/grpc/*_pb2*.py' -delete \
 && touch tritonclient/__init__.py tritonclient/grpc/__init__.py \
 && python -m compileall -q -j 2 .
COPY operator/slo_operator /opt/inferenceslo/slo_operator
COPY tuner/slo_tuner /opt/inferenceslo/slo_tuner
# USER: kopf asks for the user's name when it starts, and this one is in no passwd file
ENV PYTHONPATH=/opt/inferenceslo \
    USER=inferenceslo \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# Every module is loaded once here, so that a library that is missing stops the build and not the operator. What is below
# remote runs in the serving image.
RUN python -m compileall -q /opt/inferenceslo/slo_operator /opt/inferenceslo/slo_tuner \
 && python -c "import pkgutil, slo_operator, slo_tuner; \
[__import__(m.name) for p in (slo_operator, slo_tuner) \
 for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.') if not m.name.endswith('__main__') and '.remote.' not in m.name]"
USER 10001:10001
EXPOSE 8080 4318
ENTRYPOINT ["python", "-m", "slo_operator"]
