#include "startup.h"

int main() {
  temper::register_everything();
  return 0;
}
