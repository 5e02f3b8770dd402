// Parquet: each row as the text of a JSON object, in batches. The one file that includes Arrow's headers.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/float16.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <cmath>
#include <exception>
#include <new>

#include "base/base64.h"
#include "base/error.h"
#include "base/text.h"
#include "formats/format.h"
#include "formats/parquet/text.h"

namespace temper::formats {
namespace {

constexpr std::string_view kMagic = "PAR1";
constexpr int64_t kBatchRows = 1024;
constexpr size_t kWritten = size_t{4} << 20;

// Where a value stands, for errors about it.
struct Column {
  std::string file;
  std::string name;  // "messages.content"
  [[noreturn]] void stop(const std::string& problem) const {
    fail("[{}] column '{}' {}", file, name, problem);
  }
};

// Writes the value at an index of one array; never called for nulls.
using Print = std::function<void(int64_t index, std::string& out)>;

Print printer(const arrow::Array& array, const Column& column);

// With nulls.
Print printer_or_null(const std::shared_ptr<arrow::Array>& array, const Column& column) {
  if (array->type_id() == arrow::Type::NA) return [](int64_t, std::string& out) { out += "null"; };
  return [array, print = printer(*array, column)](int64_t index, std::string& out) {
    if (array->IsNull(index))
      out += "null";
    else
      print(index, out);
  };
}

template <class Array>
Print integers(const arrow::Array& array) {
  const auto& values = static_cast<const Array&>(array);
  return [&values](int64_t index, std::string& out) {
    fmt::format_to(std::back_inserter(out), "{}", values.Value(index));
  };
}

template <class Value>
Print floats(const Value& value, const Column& column) {
  return [value, column](int64_t index, std::string& out) {
    const double number = value(index);
    if (!std::isfinite(number)) column.stop(fmt::format("holds {}, which JSON has no number for", number));
    out += format_double(number);
  };
}

template <class Array>
Print texts(const arrow::Array& array, const Column& column) {
  const auto& values = static_cast<const Array&>(array);
  return [&values, column](int64_t index, std::string& out) {
    const std::string_view text = values.GetView(index);
    if (valid_utf8_prefix(text) != text.size()) column.stop("holds text that is not valid UTF-8");
    append_json_text(text, out);
  };
}

// The field of an image column that has the file, as data sets have it: {bytes, path}. Others are refused.
constexpr std::string_view kFileBytes = ".bytes";

template <class Array>
Print files(const arrow::Array& array) {
  const auto& values = static_cast<const Array&>(array);
  return [&values](int64_t index, std::string& out) {
    append_json_text(encode_base64(values.GetView(index)), out);
  };
}

Print binary(const arrow::Array& array, const Column& column) {
  if (!column.name.ends_with(kFileBytes))
    column.stop(fmt::format("is of type {}, which rows of text cannot hold; leave it out or write it as text",
                            array.type()->ToString()));
  return array.type_id() == arrow::Type::BINARY ? files<arrow::BinaryArray>(array)
                                                : files<arrow::LargeBinaryArray>(array);
}

template <class Array>
Print decimals(const arrow::Array& array) {
  const auto& values = static_cast<const Array&>(array);
  return [&values](int64_t index, std::string& out) { append_json_text(values.FormatValue(index), out); };
}

template <class Array>
Print lists(const arrow::Array& array, const Column& column) {
  const auto& lists = static_cast<const Array&>(array);
  return [&lists, print = printer_or_null(lists.values(), column)](int64_t index, std::string& out) {
    out += '[';
    const int64_t begin = lists.value_offset(index);
    const int64_t end = begin + lists.value_length(index);
    for (int64_t item = begin; item < end; ++item) {
      if (item > begin) out += ", ";
      print(item, out);
    }
    out += ']';
  };
}

Print structs(const arrow::Array& array, const Column& column) {
  const auto& fields = static_cast<const arrow::StructArray&>(array);
  std::vector<std::pair<std::string, Print>> members;
  for (int i = 0; i < fields.num_fields(); ++i) {
    const std::string& name = fields.type()->field(i)->name();
    const Column member{column.file, column.name.empty() ? name : column.name + "." + name};
    std::string key;
    append_json_text(name, key);
    members.emplace_back((i > 0 ? ", " : "") + key + ": ", printer_or_null(fields.field(i), member));
  }
  return [members = std::move(members)](int64_t index, std::string& out) {
    out += '{';
    for (const auto& [key, print] : members) {
      out += key;
      print(index, out);
    }
    out += '}';
  };
}

Print maps(const arrow::Array& array, const Column& column) {
  const auto& map = static_cast<const arrow::MapArray&>(array);
  const auto& type = static_cast<const arrow::MapType&>(*map.type());
  const bool text_keys = arrow::is_base_binary_like(type.key_type()->id());
  if (!text_keys && !arrow::is_integer(type.key_type()->id()))
    column.stop(
        fmt::format("is a map with keys of type {}; expected text or integers", type.key_type()->ToString()));
  return [&map, text_keys, key = printer(*map.keys(), column), item = printer_or_null(map.items(), column)](
             int64_t index, std::string& out) {
    const int64_t begin = map.value_offset(index);
    out += '{';
    for (int64_t i = begin; i < begin + map.value_length(index); ++i) {
      if (i > begin) out += ", ";
      if (!text_keys) out += '"';
      key(i, out);
      out += text_keys ? ": " : "\": ";
      item(i, out);
    }
    out += '}';
  };
}

Print dictionaries(const arrow::Array& array, const Column& column) {
  const auto& values = static_cast<const arrow::DictionaryArray&>(array);
  return [&values, print = printer_or_null(values.dictionary(), column)](int64_t index, std::string& out) {
    print(values.GetValueIndex(index), out);
  };
}

// Units of a second.
int64_t per_second(arrow::TimeUnit::type unit) {
  switch (unit) {
    case arrow::TimeUnit::SECOND:
      return 1;
    case arrow::TimeUnit::MILLI:
      return 1000;
    case arrow::TimeUnit::MICRO:
      return 1000000;
    default:
      return 1000000000;
  }
}

// Texts that `iso` makes of the values.
template <class Array, class F>
Print iso_texts(const arrow::Array& array, const F& iso) {
  return [&values = static_cast<const Array&>(array), iso](int64_t index, std::string& out) {
    append_json_text(iso(values.Value(index)), out);
  };
}

Print times(const arrow::Array& array) {
  using arrow::Type;
  const arrow::DataType& type = *array.type();
  const auto time = [&](const auto& of_array) {
    return [unit = per_second(of_array.unit())](int64_t value) { return iso_time(value, unit); };
  };
  switch (type.id()) {
    case Type::DATE32:
      return iso_texts<arrow::Date32Array>(array, [](int64_t value) { return iso_date(value); });
    case Type::DATE64:
      return iso_texts<arrow::Date64Array>(array, [](int64_t value) { return iso_date(value / 86400000); });
    case Type::TIME32:
      return iso_texts<arrow::Time32Array>(array, time(static_cast<const arrow::Time32Type&>(type)));
    case Type::TIME64:
      return iso_texts<arrow::Time64Array>(array, time(static_cast<const arrow::Time64Type&>(type)));
    default: {
      const auto& timestamp = static_cast<const arrow::TimestampType&>(type);
      const std::string zone = timestamp.timezone().empty() ? "" : "Z";
      return iso_texts<arrow::TimestampArray>(array,
                                              [unit = per_second(timestamp.unit()), zone](int64_t value) {
                                                return iso_timestamp(value, unit) + zone;
                                              });
    }
  }
}

Print numbers(const arrow::Array& array, const Column& column) {
  using arrow::Type;
  switch (array.type_id()) {
    case Type::INT8:
      return integers<arrow::Int8Array>(array);
    case Type::INT16:
      return integers<arrow::Int16Array>(array);
    case Type::INT32:
      return integers<arrow::Int32Array>(array);
    case Type::INT64:
      return integers<arrow::Int64Array>(array);
    case Type::UINT8:
      return integers<arrow::UInt8Array>(array);
    case Type::UINT16:
      return integers<arrow::UInt16Array>(array);
    case Type::UINT32:
      return integers<arrow::UInt32Array>(array);
    case Type::UINT64:
      return integers<arrow::UInt64Array>(array);
    case Type::HALF_FLOAT: {
      const auto& values = static_cast<const arrow::HalfFloatArray&>(array);
      return floats(
          [&values](int64_t i) { return arrow::util::Float16::FromBits(values.Value(i)).ToDouble(); },
          column);
    }
    case Type::FLOAT: {
      const auto& values = static_cast<const arrow::FloatArray&>(array);
      return floats([&values](int64_t i) { return double{values.Value(i)}; }, column);
    }
    default: {
      const auto& values = static_cast<const arrow::DoubleArray&>(array);
      return floats([&values](int64_t i) { return values.Value(i); }, column);
    }
  }
}

Print booleans(const arrow::Array& array) {
  const auto& values = static_cast<const arrow::BooleanArray&>(array);
  return [&values](int64_t index, std::string& out) { out += values.Value(index) ? "true" : "false"; };
}

Print printer(const arrow::Array& array, const Column& column) {
  using arrow::Type;
  const Type::type id = array.type_id();
  if (arrow::is_integer(id) || arrow::is_floating(id)) return numbers(array, column);
  switch (id) {
    case Type::BOOL:
      return booleans(array);
    case Type::STRING:
      return texts<arrow::StringArray>(array, column);
    case Type::LARGE_STRING:
      return texts<arrow::LargeStringArray>(array, column);
    case Type::STRING_VIEW:
      return texts<arrow::StringViewArray>(array, column);
    case Type::BINARY:
    case Type::LARGE_BINARY:
      return binary(array, column);
    case Type::DICTIONARY:
      return dictionaries(array, column);
    case Type::LIST:
      return lists<arrow::ListArray>(array, column);
    case Type::LARGE_LIST:
      return lists<arrow::LargeListArray>(array, column);
    case Type::FIXED_SIZE_LIST:
      return lists<arrow::FixedSizeListArray>(array, column);
    case Type::STRUCT:
      return structs(array, column);
    case Type::MAP:
      return maps(array, column);
    case Type::DECIMAL32:
      return decimals<arrow::Decimal32Array>(array);
    case Type::DECIMAL64:
      return decimals<arrow::Decimal64Array>(array);
    case Type::DECIMAL128:
      return decimals<arrow::Decimal128Array>(array);
    case Type::DECIMAL256:
      return decimals<arrow::Decimal256Array>(array);
    case Type::DATE32:
    case Type::DATE64:
    case Type::TIME32:
    case Type::TIME64:
    case Type::TIMESTAMP:
      return times(array);
    case Type::EXTENSION:
      return printer(*static_cast<const arrow::ExtensionArray&>(array).storage(), column);
    default:
      column.stop(
          fmt::format("is of type {}, which rows of text cannot hold; leave it out or write it as text",
                      array.type()->ToString()));
  }
}

void check(const arrow::Status& status, const std::string& path) {
  if (status.IsOutOfMemory()) fail_resources("[{}] no memory to read it: {}", path, status.message());
  if (!status.ok())
    fail("[{}] cannot be read as Parquet: {}; where it was cut off or damaged, get it again", path,
         status.message());
}

std::unique_ptr<parquet::arrow::FileReader> open_reader(const std::string& path) {
  // Column by column in small pieces: a group of rows may be larger than memory.
  parquet::ReaderProperties properties;
  properties.enable_buffered_stream();
  properties.set_buffer_size(1 << 20);
  parquet::ArrowReaderProperties options;
  options.set_batch_size(kBatchRows);
  options.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  check(builder.OpenFile(path, false, properties), path);
  std::unique_ptr<parquet::arrow::FileReader> reader;
  check(builder.properties(options)->Build(&reader), path);
  return reader;
}

void write_rows(const PackedFile& file, RowWriter& rows) {
  const auto reader = open_reader(file.path());
  const auto batches = reader->GetRecordBatchReader();
  check(batches.status(), file.path());
  const double total = static_cast<double>(reader->parquet_reader()->metadata()->num_rows());
  int64_t done = 0;
  std::string text;
  std::shared_ptr<arrow::RecordBatch> batch;
  while (check((*batches)->ReadNext(&batch), file.path()), batch != nullptr) {
    const auto columns = batch->ToStructArray();
    check(columns.status(), file.path());
    const Print print = structs(**columns, {file.path(), ""});
    for (int64_t row = 0; row < batch->num_rows(); ++row) {
      print(row, text);
      text += '\n';
      if (text.size() < kWritten) continue;
      rows.write(text);
      text.clear();
    }
    done += batch->num_rows();
    rows.progress(static_cast<double>(done) / total);
  }
  rows.write(text);
}

// Arrow tells of some damage by exceptions.
template <class Act>
auto guarded(const std::string& path, const Act& act) {
  try {
    return act();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc& error) {
    fail_resources("[{}] no memory to read it: {}", path, error.what());
  } catch (const std::exception& error) {
    check(arrow::Status::IOError(error.what()), path);
    throw;
  }
}

bool recognizes(std::string_view content) { return content.starts_with(kMagic); }

// Texts take about what they take there unpacked; half of it, as numbers may be shorter than their bytes.
int64_t least_bytes(const PackedFile& file) {
  return guarded(file.path(), [&] {
    const auto metadata = open_reader(file.path())->parquet_reader()->metadata();
    int64_t bytes = 0;
    for (int group = 0; group < metadata->num_row_groups(); ++group)
      bytes += metadata->RowGroup(group)->total_byte_size();
    return bytes / 2;
  });
}

void convert(const PackedFile& file, RowWriter& rows) {
  guarded(file.path(), [&] { write_rows(file, rows); });
}

}  // namespace

void register_parquet() {
  registry<Conversion>().add("parquet", {recognizes, least_bytes, convert, 1, RowsWritten::kLines});
}

}  // namespace temper::formats
