#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/temporary_folder.h"

// Files for the tests of data: indexes written field by field, so that
// each field can be forged.
namespace tessera::testing {

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// An index in Megatron's layout. Counts follow from the arrays unless they are forged.
struct Index {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t dtype = 1;
  std::vector<int32_t> lengths;
  std::vector<int64_t> offsets;
  std::vector<int64_t> documents;
  std::vector<int8_t> modes;  // of multimodal data
  int64_t forged_sequences = -1;
  int64_t forged_documents = -1;

  std::string bytes() const {
    const auto count = [](int64_t forged, size_t real) {
      return std::vector<uint64_t>{forged < 0 ? real : static_cast<uint64_t>(forged)};
    };
    return magic + bytes_of<uint64_t>({version}) + std::string(1, static_cast<char>(dtype)) +
           bytes_of(count(forged_sequences, lengths.size())) +
           bytes_of(count(forged_documents, documents.size())) + bytes_of(lengths) +
           bytes_of(offsets) + bytes_of(documents) + bytes_of(modes);
  }
};

// Writes a pair of one document and one sequence.
template <typename T>
void write_pair(const std::string& prefix, uint8_t dtype, const std::vector<T>& tokens) {
  Index index;
  index.dtype = dtype;
  index.lengths = {static_cast<int32_t>(tokens.size())};
  index.offsets = {0};
  index.documents = {0, 1};
  write_file(prefix + ".idx", index.bytes());
  write_file(prefix + ".bin", bytes_of(tokens));
}

// The message of the UserError that `run` throws; a failure if it throws none.
inline std::string user_error(const std::function<void()>& run) {
  try {
    run();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError";
  return {};
}

}  // namespace tessera::testing
