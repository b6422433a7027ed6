// CUB's InclusiveScanByKey and ReduceByKey over runs of equal 32-bit keys: the median seconds of a call.
// Usage: cuts LENGTH KEYS.bin, a file of LENGTH 32-bit keys. Prints a name and the seconds on each line.
#include <cub/cub.cuh>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Sum {
    __host__ __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a + b; }
};

static void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

// Call `run` with temporary storage, and print the median time of 30 calls after 10.
template <typename Run>
static void measure(const char* name, Run run) {
    size_t bytes = 0;
    void* storage = nullptr;
    check(run(storage, bytes));
    check(cudaMalloc(&storage, bytes));
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < 40; i++) {
        float milliseconds = 0;
        check(cudaEventRecord(begin));
        check(run(storage, bytes));
        check(cudaEventRecord(end));
        check(cudaEventSynchronize(end));
        check(cudaEventElapsedTime(&milliseconds, begin, end));
        if (i >= 10) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    std::printf("%s %.9f\n", name, times[times.size() / 2] / 1e3);
    check(cudaFree(storage));
}

int main(int count, char** arguments) {
    if (count != 3) return 2;
    const int64_t length = std::atoll(arguments[1]);
    std::vector<uint32_t> host(length);
    FILE* file = std::fopen(arguments[2], "rb");
    if (!file || std::fread(host.data(), 4, length, file) != size_t(length)) return 1;
    uint32_t *keys, *values, *results, *found, *runs;
    for (uint32_t** array : {&keys, &values, &results, &found}) check(cudaMalloc(array, 4 * length));
    check(cudaMalloc(&runs, 4));
    check(cudaMemcpy(keys, host.data(), 4 * length, cudaMemcpyHostToDevice));
    check(cudaMemset(values, 1, 4 * length));
    measure("InclusiveScanByKey", [&](void* storage, size_t& bytes) {
        return cub::DeviceScan::InclusiveScanByKey(storage, bytes, keys, values, results, Sum(), length);
    });
    measure("ReduceByKey", [&](void* storage, size_t& bytes) {
        return cub::DeviceReduce::ReduceByKey(storage, bytes, keys, found, values, results, runs, Sum(), length);
    });
}
