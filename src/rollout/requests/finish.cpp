#include "rollout/requests/finish.h"

namespace temper::rollout {

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::kStopToken:
    case Finish::kStopString:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kContext:
      return "context";
    case Finish::kCancelled:
      return "cancelled";
    case Finish::kFailed:
      break;
  }
  return "failed";
}

}  // namespace temper::rollout
