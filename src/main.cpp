#include "cli/program.h"
#include "startup.h"

int main(int argc, char** argv) {
  temper::register_everything();
  temper::cli::Program program;
  temper::cli::add_train(program);
  temper::cli::add_generate(program);
  temper::cli::add_chat(program);
  temper::cli::add_data_inspect(program);
  temper::cli::add_init(program);
  temper::cli::add_doctor(program);
  return program.run(argc, argv);
}
