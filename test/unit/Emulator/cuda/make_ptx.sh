#!/bin/sh
# Compiles the .cu files of this folder to the .ptx beside them. Needs nvcc 13; the tests do not.
cd "$(dirname "$0")" || exit 1
for source in *.cu; do
  arch=compute_80
  [ "$source" = bulk_barrier.cu ] && arch=compute_90
  nvcc -std=c++17 -O3 -arch="$arch" -ptx "$source" -o "${source%.cu}.ptx" || exit 1
  echo "${source%.cu}.ptx"
done
