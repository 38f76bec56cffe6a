/* An NVML that says what the file named by FAKE_NVML says: a line `0.uuid=GPU-…` for a card's fact, `0.mig.2.uuid=…` for
   an instance's, `driver=…` for the machine's. A fact that is not there is NOT_SUPPORTED; `!15` is answered with that
   return code. FAKE_NVML_HANGS=n never answers for card n, FAKE_NVML_CRASHES=n dies of it. Compiled with -DOLD it has
   none of what came after R470, as libraries of that age. As in the real one, a structure of another size or version than
   it knows is an ARGUMENT_VERSION_MISMATCH. */
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
typedef struct { unsigned version, sensor; int celsius; } thermometer;
typedef struct { unsigned version; unsigned long long counts[11]; unsigned exceeded; } sram;
typedef struct { unsigned version, value; } versioned;
typedef struct { unsigned version, channel, tpc; } repair;

/* Whether it is the structure that we know under this version. */
#define KNOWN(o, n) ((o)->version == (sizeof *(o) | (unsigned)(n) << 24))

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
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *h, memory_v2 *o) {
    int c = fact(h, "total"); if (c) return c; if (!KNOWN(o, 2)) return 25;
    o->total = mib(h, "total"); o->free = mib(h, "free"); o->used = mib(h, "used"); o->reserved = mib(h, "reserved"); return 0; }
int nvmlDeviceGetTemperatureV(void *h, thermometer *o) {
    unsigned t; int c = whole(h, "temperature", &t); if (!KNOWN(o, 1)) return 25; if (!c) o->celsius = (int)t; return c; }
int nvmlDeviceGetAddressingMode(void *h, versioned *o) { return KNOWN(o, 1) ? whole(h, "addressing", &o->value) : 25; }
int nvmlDeviceGetUnrepairableMemoryFlag_v1(void *h, versioned *o) { return KNOWN(o, 1) ? whole(h, "unrepairable", &o->value) : 25; }
int nvmlDeviceGetRepairStatus(void *h, repair *o) {
    if (!KNOWN(o, 1)) return 25;
    int c = fact(h, "repair"); if (!c) sscanf(value, "%u,%u", &o->channel, &o->tpc); return c; }
int nvmlDeviceGetSramEccErrorStatus(void *h, sram *o) { return KNOWN(o, 1) ? whole(h, "sram_exceeded", &o->exceeded) : 25; }
#endif
int nvmlDeviceValidateInforom(void *h) { return whole(h, "inforom", &(unsigned){0}); }
int nvmlDeviceGetTemperature(void *h, unsigned s, unsigned *o) { return whole(h, "temperature", o); }
int nvmlDeviceGetTemperatureThreshold(void *h, unsigned k, unsigned *o) { return whole(h, "slowdown", o); }
#ifndef OLD
int nvmlDeviceGetMarginTemperature(void *h, margin *o) {
    unsigned m; if (!KNOWN(o, 1)) return 25; int c = whole(h, "margin", &m); if (!c) o->margin = (int)m; return c; }
#endif
int nvmlDeviceGetPowerUsage(void *h, unsigned *o) { return whole(h, "milliwatts", o); }
int nvmlDeviceGetPowerManagementLimit(void *h, unsigned *o) { return whole(h, "limit", o); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *h, unsigned *o) { return whole(h, "default_limit", o); }
int nvmlDeviceGetClockInfo(void *h, unsigned k, unsigned *o) { return whole(h, k == 1 ? "sm_clock" : "memory_clock", o); }
int nvmlDeviceGetUtilizationRates(void *h, utilization *o) { return whole(h, "utilization", &o->gpu); }
int nvmlDeviceGetPerformanceState(void *h, unsigned *o) { return whole(h, "pstate", o); }
#ifdef OLD
#define nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons
#endif
int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *o) { int c = fact(h, "reasons"); if (!c) *o = strtoull(value, 0, 16); return c; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *h, unsigned *o) { return whole(h, "gen", o); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *h, unsigned *o) { return whole(h, "gen_max", o); }
int nvmlDeviceGetCurrPcieLinkWidth(void *h, unsigned *o) { return whole(h, "width", o); }
int nvmlDeviceGetMaxPcieLinkWidth(void *h, unsigned *o) { return whole(h, "width_max", o); }
int nvmlDeviceGetPcieReplayCounter(void *h, unsigned *o) { return whole(h, "replays", o); }
int nvmlDeviceGetEccMode(void *h, unsigned *a, unsigned *b) { int c = whole(h, "ecc", a); *b = *a; return c; }
int nvmlDeviceGetMemoryErrorCounter(void *h, unsigned kind, unsigned since, unsigned place, unsigned long long *o) {
    char name[40]; snprintf(name, sizeof name, "errors.%u.%u.%u", kind, since, place);
    int c = fact(h, name); if (!c) *o = strtoull(value, 0, 10); return c; }
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
/* `pid,MiB` of each, with blanks between. */
static int processes(void *h, const char *name, unsigned *n, process *out) {
    int c = fact(h, name); unsigned found = 0, pid; unsigned long long held;
    if (c) return c;
    for (char *at = value; *at && sscanf(at, "%u,%llu", &pid, &held) == 2; at += strcspn(at, " "), at += *at == ' ') {
        if (out && found < *n) out[found] = (process){pid, held << 20, 0xFFFFFFFF, 0xFFFFFFFF};
        found++;
    }
    c = found && !out ? 7 : 0;
    *n = found;
    return c; }
#ifdef OLD
int nvmlDeviceGetComputeRunningProcesses_v2(void *h, unsigned *n, process *o) { return processes(h, "compute", n, o); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *h, unsigned *n, process *o) { return processes(h, "graphics", n, o); }
#else
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, process *o) { return processes(h, "compute", n, o); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *n, process *o) { return processes(h, "graphics", n, o); }
#endif
int nvmlDeviceGetFieldValues(void *h, int n, field_value *o) {
    for (int i = 0; i < n; i++) { char name[40]; snprintf(name, sizeof name, "field.%u", o[i].field); o[i].code = (unsigned)whole(h, name, &o[i].value.u); }
    return 0; }
int nvmlDeviceGetNvLinkState(void *h, unsigned link, unsigned *o) { char name[40]; snprintf(name, sizeof name, "link.%u", link); return whole(h, name, o); }
static int of_link(void *h, const char *what, unsigned link, unsigned *o) {
    char name[60]; snprintf(name, sizeof name, "link.%u.%s", link, what); return whole(h, name, o); }
int nvmlDeviceGetNvLinkRemoteDeviceType(void *h, unsigned link, unsigned *o) { return of_link(h, "remote", link, o); }
int nvmlDeviceGetNvLinkErrorCounter(void *h, unsigned link, unsigned which, unsigned long long *o) {
    unsigned count; static const char *const NAMES[] = {"replay", "recovery", "crc"};
    int c = which < 3 ? of_link(h, NAMES[which], link, &count) : 2; if (!c) *o = count; return c; }
#ifndef OLD
/* `state,status,clique,32 digits of the cluster,healthMask,healthSummary`; fabric=2 among the machine's facts knows v2 alone. */
int nvmlDeviceGetGpuFabricInfoV(void *h, fabric *o) {
    unsigned state = 0, status = 0, clique = 0, mask = 0, summary = 0, version = o->version >> 24; char uuid[40] = "";
    unsigned newest = look("fabric") ? 3 : (unsigned)atol(value); int c = fact(h, "fabric"); if (c) return c;
    if (version > newest || version < 2 || (o->version & 0xFFFFFF) != (version == 3 ? sizeof *o : 36)) return 25;
    sscanf(value, "%u,%u,%u,%39[^,],%x,%u", &state, &status, &clique, uuid, &mask, &summary);
    for (int i = 0; i < 16; i++) { unsigned byte = 0; sscanf(uuid + 2 * i, "%2x", &byte); o->uuid[i] = (unsigned char)byte; }
    o->state = (unsigned char)state; o->status = status; o->clique = clique; o->mask = mask;
    if (version == 3) o->summary = (unsigned char)summary;
    return 0; }
#endif
