/* An NVML that says what the file named by FAKE_NVML says: a line `0.uuid=GPU-…` for a card's fact, `0.mig.2.uuid=…` for
   an instance's, `driver=…` for the machine's. A fact that is not there is NOT_SUPPORTED; `!15` is answered with that
   return code. FAKE_NVML_HANGS=n never answers for card n, FAKE_NVML_CRASHES=n dies of it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process;
typedef struct { unsigned field, scope; long long at, took; unsigned type, code; union { unsigned u; double d; } value; } field_value;
typedef struct { unsigned sms, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices; unsigned long long mib; } attributes;
typedef struct { unsigned version; unsigned char uuid[16]; unsigned status, clique; unsigned char state; unsigned mask; unsigned char summary; } fabric;
typedef struct { unsigned max, high, partial, low, none; } histogram;
typedef struct { unsigned version; int margin; } margin;

static char value[4096];

/* Return 0 and fill `value`, or the code that is to be returned. */
static int look(const char *key) {
    char line[4096]; size_t length = strlen(key); int code = 3;
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && line[length] == '=') {
            line[strcspn(line, "\n")] = 0;
            strcpy(value, line + length + 1);
            code = value[0] == '!' ? atoi(value + 1) : 0;
        }
    if (file) fclose(file);
    return code;
}
static int is(const char *name, long card) { const char *v = getenv(name); return v && atol(v) == card; }
static int fact(void *handle, const char *name) {
    char key[200]; long h = (long)handle;
    if (h >= 1000) snprintf(key, sizeof key, "%ld.mig.%ld.%s", h / 1000 - 1, h % 1000 - 1, name);
    else snprintf(key, sizeof key, "%ld.%s", h - 1, name);
    return look(key);
}
static int text(void *h, const char *name, char *out, unsigned n) { int c = fact(h, name); if (!c) snprintf(out, n, "%s", value); return c; }
static int whole(void *h, const char *name, unsigned *out) { int c = fact(h, name); if (!c) *out = (unsigned)atol(value); return c; }
static unsigned long long mib(void *h, const char *name) { return fact(h, name) ? 0 : strtoull(value, 0, 10) << 20; }

int nvmlInit_v2(void) { return look("init") == 3 ? 0 : look("init"); }
int nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int c) {
    switch (c) { case 3: return "Not Supported"; case 4: return "Insufficient Permissions"; case 9: return "Driver Not Loaded";
        case 15: return "GPU is lost"; case 16: return "GPU requires restart"; case 18: return "Driver/library version mismatch"; }
    return "Unknown Error";
}
int nvmlSystemGetDriverVersion(char *out, unsigned n) { int c = look("driver"); if (!c) snprintf(out, n, "%s", value); return c; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { int c = look("cuda"); if (!c) *out = atoi(value); return c; }
int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned n) {
    char key[40]; snprintf(key, sizeof key, "process.%u", pid); int c = look(key); if (!c) snprintf(out, n, "%s", value); return c; }
int nvmlDeviceGetCount_v2(unsigned *out) { int c = look("count"); if (!c) *out = (unsigned)atol(value); return c; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) {
    if (is("FAKE_NVML_HANGS", index)) for (;;) pause();
    if (is("FAKE_NVML_CRASHES", index)) raise(SIGSEGV);
    *card = (void *)(long)(index + 1);
    return fact(*card, "handle") == 3 ? 0 : fact(*card, "handle");
}
int nvmlDeviceGetUUID(void *h, char *o, unsigned n) { return text(h, "uuid", o, n); }
int nvmlDeviceGetName(void *h, char *o, unsigned n) { return text(h, "name", o, n); }
int nvmlDeviceGetSerial(void *h, char *o, unsigned n) { return text(h, "serial", o, n); }
int nvmlDeviceGetVbiosVersion(void *h, char *o, unsigned n) { return text(h, "vbios", o, n); }
int nvmlDeviceGetMinorNumber(void *h, unsigned *o) { return whole(h, "minor", o); }
int nvmlDeviceGetPciInfo_v3(void *h, pci_info *o) { return text(h, "pci", o->bus_id, 32); }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) { int c = fact(h, "capability"); if (!c) sscanf(value, "%d.%d", a, b); return c; }
int nvmlDeviceGetPersistenceMode(void *h, unsigned *o) { return whole(h, "persistence", o); }
int nvmlDeviceGetDisplayActive(void *h, unsigned *o) { return whole(h, "display", o); }
int nvmlDeviceGetComputeMode(void *h, unsigned *o) { return whole(h, "compute_mode", o); }
int nvmlDeviceGetVirtualizationMode(void *h, unsigned *o) { return whole(h, "virtualization", o); }
int nvmlDeviceGetMemoryInfo(void *h, memory *o) {
    int c = fact(h, "total"); if (c) return c;
    o->total = mib(h, "total"); o->free = mib(h, "free"); o->used = mib(h, "used") + mib(h, "reserved"); return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *h, memory_v2 *o) {
    int c = fact(h, "total"); if (c) return c; if (!look("old")) return 13;
    o->total = mib(h, "total"); o->free = mib(h, "free"); o->used = mib(h, "used"); o->reserved = mib(h, "reserved"); return 0; }
int nvmlDeviceGetTemperature(void *h, unsigned s, unsigned *o) { return whole(h, "temperature", o); }
int nvmlDeviceGetTemperatureThreshold(void *h, unsigned k, unsigned *o) { return whole(h, "slowdown", o); }
int nvmlDeviceGetMarginTemperature(void *h, margin *o) { unsigned m; int c = whole(h, "margin", &m); if (!c) o->margin = (int)m; return c; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *o) { return whole(h, "milliwatts", o); }
int nvmlDeviceGetPowerManagementLimit(void *h, unsigned *o) { return whole(h, "limit", o); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *h, unsigned *o) { return whole(h, "default_limit", o); }
int nvmlDeviceGetClockInfo(void *h, unsigned k, unsigned *o) { return whole(h, k == 1 ? "sm_clock" : "memory_clock", o); }
int nvmlDeviceGetUtilizationRates(void *h, utilization *o) { return whole(h, "utilization", &o->gpu); }
int nvmlDeviceGetPerformanceState(void *h, unsigned *o) { return whole(h, "pstate", o); }
int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *o) { int c = fact(h, "reasons"); if (!c) *o = strtoull(value, 0, 16); return c; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *h, unsigned *o) { return whole(h, "gen", o); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *h, unsigned *o) { return whole(h, "gen_max", o); }
int nvmlDeviceGetCurrPcieLinkWidth(void *h, unsigned *o) { return whole(h, "width", o); }
int nvmlDeviceGetMaxPcieLinkWidth(void *h, unsigned *o) { return whole(h, "width_max", o); }
int nvmlDeviceGetPcieReplayCounter(void *h, unsigned *o) { return whole(h, "replays", o); }
int nvmlDeviceGetEccMode(void *h, unsigned *a, unsigned *b) { int c = whole(h, "ecc", a); *b = *a; return c; }
int nvmlDeviceGetTotalEccErrors(void *h, unsigned kind, unsigned since, unsigned long long *o) {
    char name[40]; snprintf(name, sizeof name, "errors.%u.%u", kind, since); int c = fact(h, name); if (!c) *o = strtoull(value, 0, 10); return c; }
int nvmlDeviceGetRemappedRows(void *h, unsigned *a, unsigned *b, unsigned *p, unsigned *f) {
    int c = fact(h, "remapped"); if (!c) sscanf(value, "%u,%u,%u,%u", a, b, p, f); return c; }
int nvmlDeviceGetRowRemapperHistogram(void *h, histogram *o) { return whole(h, "spare_none", &o->none); }
int nvmlDeviceGetRetiredPages(void *h, unsigned cause, unsigned *n, unsigned long long *pages) {
    char name[40]; snprintf(name, sizeof name, "retired.%u", cause); unsigned many; int c = whole(h, name, &many);
    if (c) return c;
    *n = many;
    if (!pages) return many ? 7 : 0;
    for (unsigned i = 0; i < many; i++) pages[i] = i;
    return 0; }
int nvmlDeviceGetRetiredPagesPendingStatus(void *h, unsigned *o) { return whole(h, "retired.pending", o); }
int nvmlDeviceGetMigMode(void *h, unsigned *a, unsigned *b) { int c = fact(h, "mig"); if (!c) sscanf(value, "%u,%u", a, b); return c; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *o) { *o = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned slot, void **part) {
    *part = (void *)((long)h * 1000 + slot + 1); return fact(*part, "uuid") == 3 ? 6 : 0; }
int nvmlDeviceGetGpuInstanceId(void *h, unsigned *o) { return whole(h, "gi", o); }
int nvmlDeviceGetComputeInstanceId(void *h, unsigned *o) { return whole(h, "ci", o); }
int nvmlDeviceGetAttributes_v2(void *h, attributes *o) {
    memset(o, 0, sizeof *o); int c = whole(h, "sms", &o->sms); whole(h, "slices", &o->gi_slices); o->mib = mib(h, "total") >> 20; return c; }
static int processes(void *h, const char *name, unsigned *n, process *out) {
    int c = fact(h, name);
    if (c) return c;
    *n = value[0] ? 1 : 0;
    if (!*n) return 0;
    if (!out) return 7;
    unsigned pid; unsigned long long held; sscanf(value, "%u,%llu", &pid, &held);
    out[0] = (process){pid, held << 20, 0xFFFFFFFF, 0xFFFFFFFF}; *n = 1; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, process *o) { return processes(h, "compute", n, o); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *n, process *o) { return processes(h, "graphics", n, o); }
int nvmlDeviceGetFieldValues(void *h, int n, field_value *o) {
    for (int i = 0; i < n; i++) { char name[40]; snprintf(name, sizeof name, "field.%u", o[i].field); o[i].code = (unsigned)whole(h, name, &o[i].value.u); }
    return 0; }
int nvmlDeviceGetNvLinkState(void *h, unsigned link, unsigned *o) { char name[40]; snprintf(name, sizeof name, "link.%u", link); return whole(h, name, o); }
int nvmlDeviceGetGpuFabricInfoV(void *h, fabric *o) {
    unsigned state, status, clique; char uuid[40] = ""; unsigned version = o->version; int c = fact(h, "fabric"); if (c) return c;
    if ((version >> 24) != 3) return 25;
    sscanf(value, "%u,%u,%u,%39s", &state, &status, &clique, uuid);
    for (int i = 0; i < 16; i++) { unsigned byte = 0; sscanf(uuid + 2 * i, "%2x", &byte); o->uuid[i] = (unsigned char)byte; }
    o->state = (unsigned char)state; o->status = status; o->clique = clique; o->mask = 0; o->summary = 0; return 0; }
