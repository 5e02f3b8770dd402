#include "device/cuda/failures.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "device/graph.h"

namespace temper::device {
namespace {

struct Row {
  int code;
  Failure failure;
  const char* name;
};

// All errors of the runtime and of the driver, which share their numbers, sorted by them.
constexpr Row kFailures[] = {
    {1, Failure::kDefect, "cudaErrorInvalidValue"},
    {2, Failure::kOutOfMemory, "cudaErrorMemoryAllocation"},
    {3, Failure::kUnusable, "cudaErrorInitializationError"},
    {4, Failure::kLost, "cudaErrorCudartUnloading"},
    {5, Failure::kDefect, "cudaErrorProfilerDisabled"},
    {6, Failure::kDefect, "cudaErrorProfilerNotInitialized"},
    {7, Failure::kDefect, "cudaErrorProfilerAlreadyStarted"},
    {8, Failure::kDefect, "cudaErrorProfilerAlreadyStopped"},
    {9, Failure::kDefect, "cudaErrorInvalidConfiguration"},
    {12, Failure::kDefect, "cudaErrorInvalidPitchValue"},
    {13, Failure::kDefect, "cudaErrorInvalidSymbol"},
    {16, Failure::kDefect, "cudaErrorInvalidHostPointer"},
    {17, Failure::kDefect, "cudaErrorInvalidDevicePointer"},
    {18, Failure::kDefect, "cudaErrorInvalidTexture"},
    {19, Failure::kDefect, "cudaErrorInvalidTextureBinding"},
    {20, Failure::kDefect, "cudaErrorInvalidChannelDescriptor"},
    {21, Failure::kDefect, "cudaErrorInvalidMemcpyDirection"},
    {22, Failure::kDefect, "cudaErrorAddressOfConstant"},
    {23, Failure::kDefect, "cudaErrorTextureFetchFailed"},
    {24, Failure::kDefect, "cudaErrorTextureNotBound"},
    {25, Failure::kDefect, "cudaErrorSynchronizationError"},
    {26, Failure::kDefect, "cudaErrorInvalidFilterSetting"},
    {27, Failure::kDefect, "cudaErrorInvalidNormSetting"},
    {28, Failure::kDefect, "cudaErrorMixedDeviceExecution"},
    {31, Failure::kDefect, "cudaErrorNotYetImplemented"},
    {32, Failure::kDefect, "cudaErrorMemoryValueTooLarge"},
    {34, Failure::kUnusable, "cudaErrorStubLibrary"},
    {35, Failure::kUnusable, "cudaErrorInsufficientDriver"},
    {36, Failure::kUnusable, "cudaErrorCallRequiresNewerDriver"},
    {37, Failure::kDefect, "cudaErrorInvalidSurface"},
    {43, Failure::kDefect, "cudaErrorDuplicateVariableName"},
    {44, Failure::kDefect, "cudaErrorDuplicateTextureName"},
    {45, Failure::kDefect, "cudaErrorDuplicateSurfaceName"},
    {46, Failure::kUnusable, "cudaErrorDevicesUnavailable"},
    {49, Failure::kDefect, "cudaErrorIncompatibleDriverContext"},
    {52, Failure::kDefect, "cudaErrorMissingConfiguration"},
    {53, Failure::kPoisoned, "cudaErrorPriorLaunchFailure"},
    {65, Failure::kDefect, "cudaErrorLaunchMaxDepthExceeded"},
    {66, Failure::kDefect, "cudaErrorLaunchFileScopedTex"},
    {67, Failure::kDefect, "cudaErrorLaunchFileScopedSurf"},
    {68, Failure::kDefect, "cudaErrorSyncDepthExceeded"},
    {69, Failure::kDefect, "cudaErrorLaunchPendingCountExceeded"},
    {98, Failure::kDefect, "cudaErrorInvalidDeviceFunction"},
    {100, Failure::kUnusable, "cudaErrorNoDevice"},
    {101, Failure::kUnusable, "cudaErrorInvalidDevice"},
    {102, Failure::kUnusable, "cudaErrorDeviceNotLicensed"},
    {103, Failure::kUnusable, "cudaErrorSoftwareValidityNotEstablished"},
    {127, Failure::kUnusable, "cudaErrorStartupFailure"},
    {200, Failure::kDefect, "cudaErrorInvalidKernelImage"},
    {201, Failure::kDefect, "cudaErrorDeviceUninitialized"},
    {202, Failure::kDefect, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT"},
    {205, Failure::kDefect, "cudaErrorMapBufferObjectFailed"},
    {206, Failure::kDefect, "cudaErrorUnmapBufferObjectFailed"},
    {207, Failure::kDefect, "cudaErrorArrayIsMapped"},
    {208, Failure::kDefect, "cudaErrorAlreadyMapped"},
    {209, Failure::kNoCode, "cudaErrorNoKernelImageForDevice"},
    {210, Failure::kDefect, "cudaErrorAlreadyAcquired"},
    {211, Failure::kDefect, "cudaErrorNotMapped"},
    {212, Failure::kDefect, "cudaErrorNotMappedAsArray"},
    {213, Failure::kDefect, "cudaErrorNotMappedAsPointer"},
    {214, Failure::kLost, "cudaErrorECCUncorrectable"},
    {215, Failure::kDefect, "cudaErrorUnsupportedLimit"},
    {216, Failure::kDefect, "cudaErrorDeviceAlreadyInUse"},
    {217, Failure::kDefect, "cudaErrorPeerAccessUnsupported"},
    {218, Failure::kDefect, "cudaErrorInvalidPtx"},
    {219, Failure::kDefect, "cudaErrorInvalidGraphicsContext"},
    {220, Failure::kLost, "cudaErrorNvlinkUncorrectable"},
    {221, Failure::kUnusable, "cudaErrorJitCompilerNotFound"},
    {222, Failure::kUnusable, "cudaErrorUnsupportedPtxVersion"},
    {223, Failure::kUnusable, "cudaErrorJitCompilationDisabled"},
    {224, Failure::kDefect, "cudaErrorUnsupportedExecAffinity"},
    {225, Failure::kDefect, "cudaErrorUnsupportedDevSideSync"},
    {226, Failure::kLost, "cudaErrorContained"},
    {300, Failure::kDefect, "cudaErrorInvalidSource"},
    {301, Failure::kDefect, "cudaErrorFileNotFound"},
    {302, Failure::kUnusable, "cudaErrorSharedObjectSymbolNotFound"},
    {303, Failure::kUnusable, "cudaErrorSharedObjectInitFailed"},
    {304, Failure::kUnusable, "cudaErrorOperatingSystem"},
    {400, Failure::kDefect, "cudaErrorInvalidResourceHandle"},
    {401, Failure::kDefect, "cudaErrorIllegalState"},
    {402, Failure::kDefect, "cudaErrorLossyQuery"},
    {500, Failure::kDefect, "cudaErrorSymbolNotFound"},
    {600, Failure::kDefect, "cudaErrorNotReady"},
    {700, Failure::kPoisoned, "cudaErrorIllegalAddress"},
    {701, Failure::kDefect, "cudaErrorLaunchOutOfResources"},
    {702, Failure::kPoisoned, "cudaErrorLaunchTimeout"},
    {703, Failure::kDefect, "cudaErrorLaunchIncompatibleTexturing"},
    {704, Failure::kDefect, "cudaErrorPeerAccessAlreadyEnabled"},
    {705, Failure::kDefect, "cudaErrorPeerAccessNotEnabled"},
    {708, Failure::kDefect, "cudaErrorSetOnActiveProcess"},
    {709, Failure::kPoisoned, "cudaErrorContextIsDestroyed"},
    {710, Failure::kPoisoned, "cudaErrorAssert"},
    {711, Failure::kDefect, "cudaErrorTooManyPeers"},
    {712, Failure::kDefect, "cudaErrorHostMemoryAlreadyRegistered"},
    {713, Failure::kDefect, "cudaErrorHostMemoryNotRegistered"},
    {714, Failure::kPoisoned, "cudaErrorHardwareStackError"},
    {715, Failure::kPoisoned, "cudaErrorIllegalInstruction"},
    {716, Failure::kPoisoned, "cudaErrorMisalignedAddress"},
    {717, Failure::kPoisoned, "cudaErrorInvalidAddressSpace"},
    {718, Failure::kPoisoned, "cudaErrorInvalidPc"},
    {719, Failure::kPoisoned, "cudaErrorLaunchFailure"},
    {720, Failure::kDefect, "cudaErrorCooperativeLaunchTooLarge"},
    {721, Failure::kPoisoned, "cudaErrorTensorMemoryLeak"},
    {800, Failure::kDefect, "cudaErrorNotPermitted"},
    {801, Failure::kDefect, "cudaErrorNotSupported"},
    {802, Failure::kUnusable, "cudaErrorSystemNotReady"},
    {803, Failure::kUnusable, "cudaErrorSystemDriverMismatch"},
    {804, Failure::kUnusable, "cudaErrorCompatNotSupportedOnDevice"},
    {805, Failure::kUnusable, "cudaErrorMpsConnectionFailed"},
    {806, Failure::kUnusable, "cudaErrorMpsRpcFailure"},
    {807, Failure::kUnusable, "cudaErrorMpsServerNotReady"},
    {808, Failure::kUnusable, "cudaErrorMpsMaxClientsReached"},
    {809, Failure::kUnusable, "cudaErrorMpsMaxConnectionsReached"},
    {810, Failure::kLost, "cudaErrorMpsClientTerminated"},
    {811, Failure::kUnusable, "cudaErrorCdpNotSupported"},
    {812, Failure::kUnusable, "cudaErrorCdpVersionMismatch"},
    {900, Failure::kUncapturable, "cudaErrorStreamCaptureUnsupported"},
    {901, Failure::kUncapturable, "cudaErrorStreamCaptureInvalidated"},
    {902, Failure::kUncapturable, "cudaErrorStreamCaptureMerge"},
    {903, Failure::kUncapturable, "cudaErrorStreamCaptureUnmatched"},
    {904, Failure::kUncapturable, "cudaErrorStreamCaptureUnjoined"},
    {905, Failure::kUncapturable, "cudaErrorStreamCaptureIsolation"},
    {906, Failure::kUncapturable, "cudaErrorStreamCaptureImplicit"},
    {907, Failure::kUncapturable, "cudaErrorCapturedEvent"},
    {908, Failure::kUncapturable, "cudaErrorStreamCaptureWrongThread"},
    {909, Failure::kDefect, "cudaErrorTimeout"},
    {910, Failure::kDefect, "cudaErrorGraphExecUpdateFailure"},
    {911, Failure::kLost, "cudaErrorExternalDevice"},
    {912, Failure::kDefect, "cudaErrorInvalidClusterSize"},
    {913, Failure::kDefect, "cudaErrorFunctionNotLoaded"},
    {914, Failure::kDefect, "cudaErrorInvalidResourceType"},
    {915, Failure::kDefect, "cudaErrorInvalidResourceConfiguration"},
    {916, Failure::kLost, "CUDA_ERROR_KEY_ROTATION"},
    {999, Failure::kLost, "cudaErrorUnknown"},
};

}  // namespace

std::optional<Failure> known_failure(int code) {
  const Row* found = std::lower_bound(std::begin(kFailures), std::end(kFailures), code,
                                      [](const Row& row, int wanted) { return row.code < wanted; });
  if (found == std::end(kFailures) || found->code != code) return std::nullopt;
  return found->failure;
}

std::string_view name_of_failure(int code) {
  for (const Row& row : kFailures)
    if (row.code == code) return row.name;
  return "";
}

Failure failure_with_free(Failure failure, size_t free_bytes) {
  constexpr size_t kLeast = size_t{64} << 20;  // more than the kernels of one call take
  const bool may_be = failure == Failure::kUnexplained || failure == Failure::kUnusable;
  return may_be && free_bytes < kLeast ? Failure::kOutOfMemory : failure;
}

ErrorKind kind_of(Failure failure) {
  switch (failure) {
    case Failure::kOutOfMemory:
    case Failure::kLost:
    case Failure::kUnusable:
    case Failure::kNoCode:
      return ErrorKind::kResources;
    case Failure::kUncapturable:
    case Failure::kPoisoned:
    case Failure::kDefect:
    case Failure::kUnexplained:
      break;
  }
  return ErrorKind::kDefect;
}

std::string_view advice(Failure failure) {
  switch (failure) {
    case Failure::kOutOfMemory:
      return "the GPU's memory is used up, perhaps by other programs: see nvidia-smi";
    case Failure::kLost:
      return "the GPU or its driver failed, and this process has lost it: see dmesg for Xid errors and "
             "nvidia-smi -q for ECC errors";
    case Failure::kUnusable:
      return "this GPU cannot be used as it is: see nvidia-smi, or use device: cpu";
    case Failure::kNoCode:
      return "this program was compiled for other GPUs: build it on a machine with such a GPU, or say which "
             "with "
             "cmake --preset release '-DTEMPER_CUDA_ARCHITECTURES=80-real;90'";
    case Failure::kUncapturable:
      return "no CUDA graph can hold this call; use train.cuda_graph: off";
    case Failure::kPoisoned:
      // Work is asked for ahead of time: the call that meets the error need not have caused it.
      return "this or earlier work on the GPU went wrong, and this process has lost the GPU: a defect of "
             "Temper, please report it, unless dmesg shows that the hardware failed (Xid errors)";
    case Failure::kDefect:
    case Failure::kUnexplained:
      break;
  }
  return "a defect of Temper; please report it";
}

void throw_failure(Failure failure, const std::string& what) {
  const std::string message = fmt::format("{}; {}", what, advice(failure));
  if (failure == Failure::kOutOfMemory) throw OutOfMemory(message);
  if (failure == Failure::kUncapturable) throw CannotCapture(message);
  throw Error(message, kind_of(failure));
}

}  // namespace temper::device
