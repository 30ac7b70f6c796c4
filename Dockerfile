# The README's install, in a container:
#
#     docker build -t fedkl .
#     docker run --volume "$PWD/runs:/fedkl/runs" fedkl train demo --rounds 3
#
# Other extras: docker build -t fedkl-flower --build-arg EXTRAS=report,flower .
FROM python:3.11-slim
RUN useradd --create-home fedkl && mkdir /fedkl && chown fedkl /fedkl
WORKDIR /fedkl
COPY --chown=fedkl . .
# A folder of its own keeps what is installed out of the system's Python.
ENV VIRTUAL_ENV=/home/fedkl/venv PATH=/home/fedkl/venv/bin:$PATH
USER fedkl
RUN python -m venv "$VIRTUAL_ENV"
# What is installed is what the tests were run with, and has the checksums of requirements-hashes.txt. pip does not take an
# editable install beside checksums, so it installs uv, which does.
RUN sed -n '/^uv==/,/[^\\]$/p' requirements-hashes.txt > /tmp/uv.txt && pip install --require-hashes -r /tmp/uv.txt
ARG EXTRAS=report
RUN uv pip install --constraint requirements-hashes.txt --build-constraint requirements-hashes.txt -e ".[$EXTRAS]"
ENTRYPOINT ["fedkl"]
CMD ["--help"]
