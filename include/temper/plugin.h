/* The interface between Temper and plug-ins: shared libraries that bring kernels, and hardware of their own.
 * Plain C. A plug-in exports
 *
 *   uint32_t temper_plugin_abi(void);                // returns TEMPER_PLUGIN_ABI
 *   int temper_plugin_register(temper_host* host);   // 0 on success
 *
 * Temper loads the files named under `plugins:` in a run's configuration and those in TEMPER_PLUGIN_PATH
 * (files or folders, separated by ':'), and refuses a plug-in made for another ABI. Everything that a plug-in
 * passes in is copied, except functions. Functions may be called from several threads, and again for each
 * model. */
#ifndef TEMPER_PLUGIN_H
#define TEMPER_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TEMPER_PLUGIN_ABI 1u
#define TEMPER_MAX_DIMS 6

typedef enum { TEMPER_F32 = 0, TEMPER_BF16 = 1, TEMPER_F16 = 2 } temper_dtype;

/* Memory that the host can address. `data` is null where a tensor is not wanted. Strides count elements. */
typedef struct {
  void* data;
  int32_t dtype;
  int32_t ndim;
  int64_t sizes[TEMPER_MAX_DIMS];
  int64_t strides[TEMPER_MAX_DIMS];
} temper_tensor;

typedef struct {
  const char* hardware; /* "cpu", "gpu", "npu", or the name of a class that a plug-in brought */
  const char* name;     /* of the device */
  int32_t cores;
  int32_t native_bf16;
  int32_t compute_capability; /* 90 for 9.0 */
  int64_t memory_bytes;
  int64_t scratch_bytes; /* on-chip memory of one running kernel; 0: no limit */
} temper_facts;

/* What a choice may depend on, by name: "dtype", and of the op: rms_norm "hidden", swiglu "intermediate". */
typedef struct {
  const char* key;
  int64_t value;
} temper_attribute;

/* 1 to accept; 0 to refuse, with a sentence in `why` ("hidden must be a multiple of 16"). */
typedef int (*temper_accepts)(const temper_attribute* signature, int32_t count, const temper_facts* facts,
                              char* why, int64_t why_size);

/* y = x / sqrt(mean(x * x) + eps) * weight, row by row. x [rows, hidden] has compact rows; weight [hidden].
 * Fills y [rows, hidden] and inv_rms [rows] float32, both compact. */
typedef struct {
  temper_tensor x, weight, y, inv_rms;
  float eps;
} temper_rms_norm_forward;

/* From dy [rows, hidden]: dx [rows, hidden], and dweight [hidden] float32 (null: not wanted), which is added
 * to when accumulate is 1 and overwritten otherwise. */
typedef struct {
  temper_tensor x, weight, inv_rms, dy, dx, dweight;
  float eps;
  int32_t accumulate;
} temper_rms_norm_backward;

/* y = silu(gate) * up with gate_up [rows, 2 * intermediate]: gate, then up. Fills y [rows, intermediate]. */
typedef struct {
  temper_tensor gate_up, y;
} temper_swiglu_forward;

typedef struct {
  temper_tensor gate_up, dy, dgate_up;
} temper_swiglu_backward;

/* forward and backward get a pointer to the op's arguments above; they return 0, or a number that is
 * reported. */
typedef struct {
  const char* op;       /* "rms_norm" or "swiglu" */
  const char* provider; /* the name to write in ops_implementation */
  const char* hardware; /* the class that it runs on */
  temper_accepts accepts;
  int (*forward)(const void* arguments);
  int (*backward)(const void* arguments);
} temper_kernel;

/* The on-chip memory, in bits, that one running kernel takes for a signature. Where it is more than the
 * device has (scratch_bytes of its facts), the kernel is refused with both figures. */
typedef int64_t (*temper_demand)(const temper_attribute* signature, int32_t count);

/* A name that a field of ops_implementation knows on this hardware. */
typedef struct {
  const char* field; /* "rms_norm" */
  const char* name;
  const char* provider;
} temper_name;

/* A class of hardware with its allow-list. `eager` is always allowed, and with strict = 0 registered kernels
 * are too. detect fills the facts of this machine's device and returns 1, or returns 0 where there is none.
 */
typedef struct {
  const char* hardware;
  const char* label;
  int32_t strict;
  const temper_name* names;
  int32_t num_names;
  int (*detect)(temper_facts* facts);
} temper_hardware;

typedef struct temper_host {
  uint32_t abi;
  const char* version;
  void* state;
  /* 0 on success; anything else must be returned from temper_plugin_register, Temper then reports why. */
  int (*add_kernel)(struct temper_host* host, const temper_kernel* kernel);
  int (*add_hardware)(struct temper_host* host, const temper_hardware* hardware);
  /* Says that a package is there which names in Temper's tables need ("triton"). */
  int (*add_package)(struct temper_host* host, const char* name);
  /* As add_kernel, of a kernel that works in on-chip memory. */
  int (*add_kernel_on_chip)(struct temper_host* host, const temper_kernel* kernel, temper_demand demand);
} temper_host;

#ifdef __cplusplus
}
#endif
#endif
