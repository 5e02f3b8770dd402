#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/float16.h>
#include <parquet/arrow/writer.h>

#include <cmath>

#include "formats/test_support.h"
#include "tests/support/errors.h"

namespace temper::formats {
namespace {

using Rows = std::vector<std::string>;
using ArrayPointer = std::shared_ptr<arrow::Array>;

template <class Builder, class Value>
ArrayPointer two(Value first, Value second) {
  Builder builder;
  (void)builder.Append(first);
  (void)builder.Append(second);
  return builder.Finish().ValueOrDie();
}

template <class Builder, class Value>
ArrayPointer two_of(const std::shared_ptr<arrow::DataType>& type, Value first, Value second) {
  Builder builder(type, arrow::default_memory_pool());
  (void)builder.Append(first);
  (void)builder.Append(second);
  return builder.Finish().ValueOrDie();
}

ArrayPointer with_null(const ArrayPointer& array) {  // its first value, then null
  return arrow::Concatenate({array->Slice(0, 1), arrow::MakeArrayOfNull(array->type(), 1).ValueOrDie()})
      .ValueOrDie();
}

class Parquet : public CacheTest {
 protected:
  std::string write(const std::vector<std::pair<std::string, ArrayPointer>>& columns,
                    int64_t rows_of_group = 1 << 20) {
    arrow::FieldVector fields;
    arrow::ArrayVector arrays;
    for (const auto& [name, array] : columns) {
      fields.push_back(arrow::field(name, array->type()));
      arrays.push_back(array);
    }
    const std::string path = folder_ / fmt::format("{}.parquet", files_++);
    const auto sink = arrow::io::FileOutputStream::Open(path).ValueOrDie();
    const auto keep_types = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    const arrow::Status status = parquet::arrow::WriteTable(
        *arrow::Table::Make(arrow::schema(fields), arrays), arrow::default_memory_pool(), sink, rows_of_group,
        parquet::default_writer_properties(), keep_types);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(sink->Close().ok());
    return path;
  }

  // What a column of these two values becomes.
  void expect_values(const ArrayPointer& array, const std::string& first, const std::string& second) {
    EXPECT_EQ(rows_of(*RowFile::open(write({{"x", array}}))),
              (Rows{"{\"x\": " + first + "}", "{\"x\": " + second + "}"}))
        << array->type()->ToString();
  }

 private:
  TemporaryDirectory folder_;
  int files_ = 0;
};

TEST_F(Parquet, Scalars) {
  expect_values(two<arrow::Int8Builder, int8_t>(-128, 7), "-128", "7");
  expect_values(two<arrow::UInt16Builder, uint16_t>(65535, 0), "65535", "0");
  expect_values(two<arrow::Int64Builder, int64_t>(INT64_MIN, INT64_MAX), "-9223372036854775808",
                "9223372036854775807");
  expect_values(two<arrow::UInt64Builder, uint64_t>(0, UINT64_MAX), "0", "18446744073709551615");
  expect_values(two<arrow::BooleanBuilder, bool>(true, false), "true", "false");
  expect_values(with_null(two<arrow::Int32Builder, int32_t>(3, 0)), "3", "null");
  expect_values(arrow::MakeArrayOfNull(arrow::null(), 2).ValueOrDie(), "null", "null");
  expect_values(two_of<arrow::Decimal128Builder>(arrow::decimal128(20, 3), arrow::Decimal128(-1234567),
                                                 arrow::Decimal128(5)),
                "\"-1234.567\"", "\"0.005\"");
}

TEST_F(Parquet, NumbersReadBackEqual) {
  const std::vector<double> values = {0.1, 1.0 / 3, 1e300, 5e-324, -0.0, 12345678901234.5};
  arrow::DoubleBuilder doubles;
  arrow::FloatBuilder floats;
  for (const double value : values) {
    (void)doubles.Append(value);
    (void)floats.Append(static_cast<float>(value > 1e30 ? 1e30 : value));
  }
  const auto rows =
      RowFile::open(write({{"d", doubles.Finish().ValueOrDie()}, {"f", floats.Finish().ValueOrDie()}}));
  for (size_t i = 0; i < values.size(); ++i) {
    const Json row = rows->parse(static_cast<int64_t>(i));
    EXPECT_EQ(row.at("d").as_double(), values[i]);
    EXPECT_EQ(row.at("f").as_double(), double{static_cast<float>(values[i] > 1e30 ? 1e30 : values[i])});
  }
  expect_values(
      two<arrow::HalfFloatBuilder>(arrow::util::Float16(0.5).bits(), arrow::util::Float16(-2.0).bits()),
      "0.5", "-2.0");
  const size_t kept = cached().size();
  const std::string nan = write({{"score", two<arrow::DoubleBuilder, double>(1.0, std::nan(""))}});
  EXPECT_EQ(error_of([&] { RowFile::open(nan); }),
            fmt::format("[{}] column 'score' holds nan, which JSON has no number for", nan));
  const std::string infinite = write({{"score", two<arrow::FloatBuilder, float>(-INFINITY, 1)}});
  expect_has(error_of([&] { RowFile::open(infinite); }), "column 'score' holds -inf");
  EXPECT_EQ(cached().size(), kept);
}

TEST_F(Parquet, Texts) {
  const std::string odd = "say \"\\\"\n\r\t\x01 ü \xF0\x9F\x98\x80";
  const std::string escaped = "\"say \\\"\\\\\\\"\\n\\r\\t\\u0001 ü \xF0\x9F\x98\x80\"";
  expect_values(two<arrow::StringBuilder, std::string>(odd, ""), escaped, "\"\"");
  expect_values(two<arrow::LargeStringBuilder, std::string>("", odd), "\"\"", escaped);
  expect_values(with_null(two<arrow::StringDictionaryBuilder, std::string_view>(odd, "x")), escaped, "null");
  EXPECT_EQ(RowFile::open(write({{"a \"key\"", two<arrow::StringBuilder, std::string>(odd, "")}}))->parse(0),
            Json(Json::Object{{"a \"key\"", odd}}));
  const std::string broken = write({{"text", two<arrow::StringBuilder, std::string>("a", "\xFF")}});
  EXPECT_EQ(error_of([&] { RowFile::open(broken); }),
            fmt::format("[{}] column 'text' holds text that is not valid UTF-8", broken));
  const std::string bytes = write({{"image", two<arrow::BinaryBuilder, std::string>("a", "b")}});
  expect_has(error_of([&] { RowFile::open(bytes); }),
             fmt::format("[{}] column 'image' is of type binary, which rows of text cannot hold", bytes));
}

TEST_F(Parquet, DatesAndTimes) {
  using arrow::TimeUnit;
  expect_values(two<arrow::Date32Builder, int32_t>(19782, -1), "\"2024-02-29\"", "\"1969-12-31\"");
  expect_values(
      two_of<arrow::TimestampBuilder, int64_t>(arrow::timestamp(TimeUnit::MILLI), 1709251199250, -1),
      "\"2024-02-29T23:59:59.25\"", "\"1969-12-31T23:59:59.999\"");
  expect_values(two_of<arrow::TimestampBuilder, int64_t>(arrow::timestamp(TimeUnit::NANO, "Europe/Berlin"), 1,
                                                         1000000000),
                "\"1970-01-01T00:00:00.000000001Z\"", "\"1970-01-01T00:00:01Z\"");
  expect_values(two_of<arrow::Time64Builder, int64_t>(arrow::time64(TimeUnit::MICRO), 3661000001, 0),
                "\"01:01:01.000001\"", "\"00:00:00\"");
}

// The messages of a conversation: a list of structs.
ArrayPointer conversations() {
  const auto role = std::make_shared<arrow::StringBuilder>(),
             content = std::make_shared<arrow::StringBuilder>();
  const auto type =
      arrow::struct_({arrow::field("role", arrow::utf8()), arrow::field("content", arrow::utf8())});
  const auto message = std::make_shared<arrow::StructBuilder>(
      type, arrow::default_memory_pool(), std::vector<std::shared_ptr<arrow::ArrayBuilder>>{role, content});
  arrow::ListBuilder lists(arrow::default_memory_pool(), message);
  (void)lists.Append();
  for (const char* text : {"hi", "there"}) {
    (void)message->Append();
    (void)role->Append("user");
    (void)content->Append(text);
  }
  (void)lists.Append();
  (void)message->Append();
  (void)role->Append("user");
  (void)content->AppendNull();
  return lists.Finish().ValueOrDie();
}

TEST_F(Parquet, Nested) {
  expect_values(conversations(),
                R"([{"role": "user", "content": "hi"}, {"role": "user", "content": "there"}])",
                R"([{"role": "user", "content": null}])");
  expect_values(with_null(conversations()->Slice(1)), R"([{"role": "user", "content": null}])", "null");
  const auto numbers = std::make_shared<arrow::Int32Builder>();
  arrow::LargeListBuilder large(arrow::default_memory_pool(), numbers);
  (void)large.Append();
  (void)large.Append();
  (void)numbers->AppendValues(std::vector<int32_t>{1, 2});
  expect_values(large.Finish().ValueOrDie(), "[]", "[1, 2]");

  const auto keys = std::make_shared<arrow::StringBuilder>();
  const auto values = std::make_shared<arrow::Int64Builder>();
  arrow::MapBuilder map(arrow::default_memory_pool(), keys, values);
  (void)map.Append();
  (void)keys->Append("a\"");
  (void)values->Append(1);
  (void)keys->Append("b");
  (void)values->AppendNull();
  (void)map.Append();
  expect_values(map.Finish().ValueOrDie(), R"({"a\"": 1, "b": null})", "{}");
}

// As data sets have pictures: the bytes of a file and its name.
TEST_F(Parquet, FilesInImageColumns) {
  const ArrayPointer bytes =
      with_null(two<arrow::BinaryBuilder, std::string>(std::string("\xFF\xD8\0", 3), ""));
  const ArrayPointer names = two<arrow::StringBuilder, std::string>("a.jpg", "b.jpg");
  const ArrayPointer images =
      arrow::StructArray::Make({bytes, names}, std::vector<std::string>{"bytes", "path"}).ValueOrDie();
  expect_values(images, R"({"bytes": "/9gA", "path": "a.jpg"})", R"({"bytes": null, "path": "b.jpg"})");
  const ArrayPointer large = two<arrow::LargeBinaryBuilder, std::string>("abc", "");
  const ArrayPointer wide = arrow::StructArray::Make({large}, std::vector<std::string>{"bytes"}).ValueOrDie();
  const auto offsets = two<arrow::Int32Builder, int32_t>(0, 2);
  EXPECT_EQ(rows_of(*RowFile::open(
                write({{"images", arrow::ListArray::FromArrays(*offsets, *wide).ValueOrDie()}}))),
            Rows{R"({"images": [{"bytes": "YWJj"}, {"bytes": ""}]})"});
}

TEST_F(Parquet, ManyRowsInGroupsAndBatches) {
  arrow::Int64Builder numbers;
  arrow::StringBuilder texts;
  constexpr int64_t kRows = 20000;
  for (int64_t row = 0; row < kRows; ++row) {
    (void)numbers.Append(row);
    (void)texts.Append(std::string(static_cast<size_t>(row % 700), 'x'));
  }
  const std::string path =
      write({{"n", numbers.Finish().ValueOrDie()}, {"t", texts.Finish().ValueOrDie()}}, 3000);
  const auto rows = RowFile::open(path);
  ASSERT_EQ(rows->size(), kRows);
  for (int64_t row = 0; row < kRows; ++row)
    ASSERT_EQ(rows->text(row), fmt::format(R"({{"n": {}, "t": "{}"}})", row,
                                           std::string(static_cast<size_t>(row % 700), 'x')));
  EXPECT_EQ(rows->place(11), path + ": row 12");
}

// A single row may look like a document; here it is a row all the same.
TEST_F(Parquet, OneRowAndNone) {
  const ArrayPointer chats = conversations();
  EXPECT_EQ(RowFile::open(write({{"data", chats->Slice(0, 1)}}))->size(), 1);
  EXPECT_EQ(RowFile::open(write({{"data", chats->Slice(0, 0)}}))->size(), 0);
  const ArrayPointer numbers = two<arrow::Int8Builder, int8_t>(1, 2);
  const auto boxes = arrow::StructArray::Make({numbers}, std::vector<std::string>{"n"}).ValueOrDie();
  const auto offsets = two<arrow::Int32Builder, int32_t>(0, 2);
  const ArrayPointer list = arrow::ListArray::FromArrays(*offsets, *boxes).ValueOrDie();
  EXPECT_EQ(rows_of(*RowFile::open(write({{"data", list}}))), Rows{R"({"data": [{"n": 1}, {"n": 2}]})"});
}

TEST_F(Parquet, CutOffOrDamaged) {
  const std::string whole =
      read_file(write({{"x", two<arrow::StringBuilder, std::string>("some text", "more of it")}}));
  for (size_t size = 4; size < whole.size(); size += 11) {
    const WrittenFile file(whole.substr(0, size));
    expect_has(error_of([&] { file.open(); }), fmt::format("[{}] cannot be read as Parquet: ", file.path()));
  }
  for (size_t at = 4; at < whole.size(); at += 3) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const WrittenFile file(damaged);
    try {
      file.open();  // damage that no sum covers may go unseen
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::kDefect) << error.what();
    }
  }
}

}  // namespace
}  // namespace temper::formats
