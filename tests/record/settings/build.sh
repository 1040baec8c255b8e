#!/bin/sh
# Builds `replay` in folder $1, from the unpacked wheels torch==2.11.0 and nvidia-cuda-runtime==13.0.96 in folder $2.
set -eu
here=$(dirname "$0")
include="-I$2/torch/include -I$2/nvidia/cu13/include"
printf 'libcudart.so.13 { global: *; };\n' > "$1/exports"
c++ -std=c++20 -O1 -shared -fPIC $include -Wl,-soname,libcudart.so.13 -Wl,--version-script="$1/exports" \
    -o "$1/libcudart.so.13" "$here/driver.cpp" -ldl
c++ -std=c++20 -O1 -w $include -o "$1/replay" "$here/replay.cpp" \
    -L"$2/torch/lib" -L"$1" -lc10_cuda -lc10 -l:libcudart.so.13 -Wl,-rpath,"$1" -Wl,--disable-new-dtags \
    -Wl,-rpath,"$2/torch/lib"
