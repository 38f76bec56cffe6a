/* An NVML that has the cards which the environment says: FAKE_NVML_GPUS many, FAKE_NVML_LOST is lost,
   FAKE_NVML_MIG is in MIG mode, FAKE_NVML_HANGS never answers. Enough for a test of our own questions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned long long total, free, used; } memory;

static int number(const char *name, int otherwise) { const char *v = getenv(name); return v ? atoi(v) : otherwise; }
static int lost(void *card) { return (long)card - 1 == number("FAKE_NVML_LOST", -1); }

int nvmlInitWithFlags(unsigned flags) {
    if (number("FAKE_NVML_HANGS", 0)) for (;;) pause();
    return number("FAKE_NVML_FAILS", 0);
}
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "?"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("FAKE_NVML_GPUS", 2); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) { *card = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetUUID(void *card, char *uuid, unsigned length) { snprintf(uuid, length, "GPU-%ld", (long)card - 1); return 0; }
int nvmlDeviceGetName(void *card, char *name, unsigned length) { snprintf(name, length, "NVIDIA H100 80GB HBM3"); return lost(card) ? 15 : 0; }
int nvmlDeviceGetMemoryInfo(void *card, memory *m) { m->total = 81559ULL << 20; m->free = m->total; m->used = 0; return lost(card) ? 15 : 0; }
int nvmlDeviceGetMigMode(void *card, unsigned *now, unsigned *next) { *now = *next = (long)card - 1 == number("FAKE_NVML_MIG", -1); return 0; }
