/* A plug-in for Temper: a class of hardware, "toy", with kernels for rms_norm and swiglu. The toy device is this
 * processor; a real one would keep its own copies of tensors and launch its own kernels. See docs/kernels.md. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <temper/plugin.h>

/* Plain float32 kernels: other dtypes are refused when kernels are chosen, never while running. */
static int float32_only(const temper_attribute* signature, int32_t count, const temper_facts* facts, char* why,
                        int64_t why_size) {
  (void)facts;
  for (int32_t i = 0; i < count; ++i)
    if (strcmp(signature[i].key, "dtype") == 0 && signature[i].value != TEMPER_F32) {
      snprintf(why, (size_t)why_size, "computes float32 only");
      return 0;
    }
  return 1;
}

static int rms_norm_forward(const void* arguments) {
  const temper_rms_norm_forward* a = arguments;
  const int64_t rows = a->x.sizes[0], hidden = a->x.sizes[1];
  const float* weight = a->weight.data;
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = (const float*)a->x.data + r * a->x.strides[0];
    float* y = (float*)a->y.data + r * hidden;
    double sum = 0;
    for (int64_t i = 0; i < hidden; ++i) sum += (double)x[i] * x[i];
    const float inv_rms = (float)(1 / sqrt(sum / (double)hidden + (double)a->eps));
    ((float*)a->inv_rms.data)[r] = inv_rms;
    for (int64_t i = 0; i < hidden; ++i) y[i] = x[i] * inv_rms * weight[i];
  }
  return 0;
}

static int rms_norm_backward(const void* arguments) {
  const temper_rms_norm_backward* a = arguments;
  const int64_t rows = a->x.sizes[0], hidden = a->x.sizes[1];
  const float* weight = a->weight.data;
  float* dweight = a->dweight.data;
  if (dweight != NULL && !a->accumulate) memset(dweight, 0, (size_t)hidden * sizeof(float));
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = (const float*)a->x.data + r * a->x.strides[0];
    const float* dy = (const float*)a->dy.data + r * hidden;
    float* dx = (float*)a->dx.data + r * hidden;
    const double inv_rms = ((const float*)a->inv_rms.data)[r];
    double dot = 0;
    for (int64_t i = 0; i < hidden; ++i) dot += (double)dy[i] * weight[i] * x[i];
    const double pull = dot * inv_rms * inv_rms * inv_rms / (double)hidden;
    for (int64_t i = 0; i < hidden; ++i) {
      dx[i] = (float)((double)dy[i] * weight[i] * inv_rms - x[i] * pull);
      if (dweight != NULL) dweight[i] += (float)((double)dy[i] * x[i] * inv_rms);
    }
  }
  return 0;
}

static int swiglu_forward(const void* arguments) {
  const temper_swiglu_forward* a = arguments;
  const int64_t rows = a->gate_up.sizes[0], inner = a->gate_up.sizes[1] / 2;
  for (int64_t r = 0; r < rows; ++r) {
    const float* gate = (const float*)a->gate_up.data + r * a->gate_up.strides[0];
    float* y = (float*)a->y.data + r * inner;
    for (int64_t i = 0; i < inner; ++i) y[i] = gate[i] / (1 + expf(-gate[i])) * gate[inner + i];
  }
  return 0;
}

static int swiglu_backward(const void* arguments) {
  const temper_swiglu_backward* a = arguments;
  const int64_t rows = a->gate_up.sizes[0], inner = a->gate_up.sizes[1] / 2;
  for (int64_t r = 0; r < rows; ++r) {
    const float* gate = (const float*)a->gate_up.data + r * a->gate_up.strides[0];
    const float* dy = (const float*)a->dy.data + r * inner;
    float* d = (float*)a->dgate_up.data + r * 2 * inner;
    for (int64_t i = 0; i < inner; ++i) {
      const float sigmoid = 1 / (1 + expf(-gate[i]));
      d[i] = dy[i] * gate[inner + i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
      d[inner + i] = dy[i] * gate[i] * sigmoid;
    }
  }
  return 0;
}

/* A row of gate and up, and what is made of it. */
static int64_t swiglu_demand(const temper_attribute* signature, int32_t count) {
  for (int32_t i = 0; i < count; ++i)
    if (strcmp(signature[i].key, "intermediate") == 0) return 3 * 32 * signature[i].value;
  return 0;
}

static int detect(temper_facts* facts) {
  facts->name = "Toy accelerator";
  facts->cores = 1;
  facts->scratch_bytes = 192 << 10;
  return 1;
}

uint32_t temper_plugin_abi(void) { return TEMPER_PLUGIN_ABI; }

int temper_plugin_register(temper_host* host) {
  static const temper_name names[] = {{"rms_norm", "toy", "toy"}, {"swiglu_mlp", "toy", "toy"}};
  const temper_hardware hardware = {.hardware = "toy",
                                    .label = "Toy accelerator",
                                    .strict = 1,
                                    .names = names,
                                    .num_names = 2,
                                    .detect = detect};
  const temper_kernel kernels[] = {
      {"rms_norm", "toy", "toy", float32_only, rms_norm_forward, rms_norm_backward},
      {"swiglu", "toy", "toy", float32_only, swiglu_forward, swiglu_backward}};
  if (host->add_hardware(host, &hardware) != 0) return 1;
  if (host->add_kernel(host, &kernels[0]) != 0) return 1;
  return host->add_kernel_on_chip(host, &kernels[1], swiglu_demand);
}
