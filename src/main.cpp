#include "cli/program.h"
#include "ops/hardware_table.h"
#include "ops/op_info.h"
#include "startup.h"

int main(int argc, char** argv) {
  temper::register_everything();
  temper::ops::check_hardware_tables(temper::ops::hardware_tables(), temper::ops::op_infos());
  temper::cli::Program program;
  temper::cli::add_train(program);
  temper::cli::add_generate(program);
  temper::cli::add_chat(program);
  temper::cli::add_data_inspect(program);
  temper::cli::add_init(program);
  temper::cli::add_doctor(program);
  return program.run(argc, argv);
}
