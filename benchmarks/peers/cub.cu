// CUB's DeviceScan behind a C function, for one element type and operator: cub.py compiles it and loads the library.
//
// Compile with -DELEMENT=<C++ type> -DOPERATOR=<one of the structs below> [-DPAIR, elements are (a, b) of ELEMENT].
#include <cub/device/device_scan.cuh>
#include <cub/version.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#ifdef _WIN32
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C"
#endif

#ifdef PAIR
struct alignas(2 * sizeof(ELEMENT)) Item { ELEMENT a, b; };
#else
using Item = ELEMENT;
#endif

struct Add { template <class T> __host__ __device__ T operator()(const T& l, const T& r) const { return l + r; } };
struct Multiply { template <class T> __host__ __device__ T operator()(const T& l, const T& r) const { return l * r; } };
struct Minimum { template <class T> __host__ __device__ T operator()(const T& l, const T& r) const { return r < l ? r : l; } };
struct Maximum { template <class T> __host__ __device__ T operator()(const T& l, const T& r) const { return l < r ? r : l; } };
struct And { template <class T> __host__ __device__ T operator()(const T& l, const T& r) const { return l & r; } };
struct Or { template <class T> __host__ __device__ T operator()(const T& l, const T& r) const { return l | r; } };
struct Xor { template <class T> __host__ __device__ T operator()(const T& l, const T& r) const { return l ^ r; } };
struct Affine { template <class T> __host__ __device__ T operator()(const T& l, const T& r) const { return {r.a * l.a, r.a * l.b + r.b}; } };

constexpr int kHolds = 8;  // copies queued ahead of what is timed, so that no launch waits for the host
constexpr size_t kHoldBytes = size_t(256) << 20;

static char message[256];

#define CHECK(call)                                                                             \
    do {                                                                                        \
        cudaError_t error_ = (call);                                                            \
        if (error_ != cudaSuccess) {                                                            \
            std::snprintf(message, sizeof message, "%s: %s", #call, cudaGetErrorString(error_)); \
            return release(message);                                                            \
        }                                                                                       \
    } while (0)

// What one call holds on the device.
static char *input = nullptr, *output = nullptr, *temporary = nullptr, *held = nullptr;

static const char* release(const char* result) {
    for (char** memory : {&input, &output, &temporary, &held}) {
        cudaFree(*memory);
        *memory = nullptr;
    }
    cudaGetLastError();
    return result;
}

EXPORT int cub_version() { return CUB_VERSION; }

EXPORT int cub_devices() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Scans `length` items of `values`, warm; gives the median time of `repeats` runs and `count` results: those at `places`,
// or the first ones where that is null. Returns a null pointer, or what went wrong.
EXPORT const char* cub_scan(const void* values, int64_t length, const int64_t* places, int64_t count, void* results,
                            int repeats, double warm_seconds, double* seconds) {
    const size_t bytes = size_t(length) * sizeof(Item);
    size_t temporary_bytes = 0;
    const Item* from = nullptr;
    Item* to = nullptr;
    auto scan = [&] {
#ifdef INCLUSIVE_SUM
        return cub::DeviceScan::InclusiveSum(temporary, temporary_bytes, from, to, length);
#else
        return cub::DeviceScan::InclusiveScan(temporary, temporary_bytes, from, to, OPERATOR{}, length);
#endif
    };
    CHECK(scan());
    CHECK(cudaMalloc(&temporary, std::max<size_t>(temporary_bytes, 1)));
    CHECK(cudaMalloc(&input, bytes));
    CHECK(cudaMalloc(&output, bytes));
    CHECK(cudaMalloc(&held, 2 * kHoldBytes));
    CHECK(cudaMemcpy(input, values, bytes, cudaMemcpyHostToDevice));
    from = reinterpret_cast<const Item*>(input);
    to = reinterpret_cast<Item*>(output);

    std::vector<cudaEvent_t> events(2 * size_t(repeats));
    for (auto& event : events) CHECK(cudaEventCreate(&event));
    std::vector<float> times(static_cast<size_t>(repeats));
    const auto begin = std::chrono::steady_clock::now();
    do {
        for (int i = 0; i < kHolds; i++)
            CHECK(cudaMemcpyAsync(held, held + kHoldBytes, kHoldBytes, cudaMemcpyDeviceToDevice));
        for (int i = 0; i < repeats; i++) {
            CHECK(cudaEventRecord(events[2 * i]));
            CHECK(scan());
            CHECK(cudaEventRecord(events[2 * i + 1]));
        }
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < repeats; i++) CHECK(cudaEventElapsedTime(&times[i], events[2 * i], events[2 * i + 1]));
    } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < warm_seconds);
    for (auto& event : events) CHECK(cudaEventDestroy(event));
    std::sort(times.begin(), times.end());
    *seconds = times[times.size() / 2] * 1e-3;

    if (places == nullptr) {
        CHECK(cudaMemcpy(results, to, size_t(count) * sizeof(Item), cudaMemcpyDeviceToHost));
        return release(nullptr);
    }
    for (int64_t i = 0; i < count; i++)
        CHECK(cudaMemcpy(static_cast<Item*>(results) + i, to + places[i], sizeof(Item), cudaMemcpyDeviceToHost));
    return release(nullptr);
}
