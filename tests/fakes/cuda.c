/* A made-up libcuda: what it says is in the environment. */
#include <stdlib.h>

static int number(const char *name) {
    const char *told = getenv(name);
    return told ? atoi(told) : 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    if (number("FAKE_CUDA_CRASH")) abort();
    return number("FAKE_CUDA_INIT");
}

int cuDriverGetVersion(int *version) {
    *version = 12080;
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = number("FAKE_CUDA_COUNT");
    return 0;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR_OTHER";
    return 0;
}
