#pragma once
#include "checkpoints/hf_folder.h"
#include "checkpoints/matrix_writer.h"
#include "checkpoints/quantized_form.h"

// What a form of other programs' folders is made of, by the names that it has in checkpoints.
namespace temper::foreign {

using checkpoints::MatrixWriter;
using checkpoints::ModelFolder;
using checkpoints::QuantizedForm;
using checkpoints::QuantizedMatrix;
using checkpoints::RoundedActivations;
using checkpoints::RoundedValues;
using checkpoints::TensorEntry;
using checkpoints::TensorInfo;
using checkpoints::WritesMatrix;

}  // namespace temper::foreign
