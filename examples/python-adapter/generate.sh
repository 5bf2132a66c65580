#!/bin/sh
# Generates the Python code of the contract with type stubs: generate.sh PROTO_DIR OUT_DIR
set -eu
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$1"
exec python3 -m grpc_tools.protoc --proto_path=. --python_out="$out" --grpc_python_out="$out" \
  --mypy_out=quiet:"$out" --mypy_grpc_out=quiet:"$out" cloudadapter/v1alpha1/*.proto
