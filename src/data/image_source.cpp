#include "data/image_source.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "data/fingerprint.h"
#include "safetensors/reader.h"

namespace tessera {
namespace {

const TensorEntry& entry_of(const SafetensorsHeader& header, const std::string& path,
                            const char* name, const char* rule) {
  for (const TensorEntry& entry : header.entries)
    if (entry.name == name) return entry;
  fail_user("data",
            "{}: no tensor {}; a file of images holds {} (tools/pack_images.py writes such files)",
            path, name, rule);
}

// One integer of a file, little-endian as safetensors lays down. UserError for types that int64
// cannot hold (U64) and for those that are no integers.
int64_t read_integer(const std::byte* at, Dtype dtype, const std::string& path) {
  const auto as = [at]<typename T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<int64_t>(value);
  };
  switch (dtype) {
    case Dtype::kU8:
      return as(uint8_t{});
    case Dtype::kI8:
      return as(int8_t{});
    case Dtype::kI16:
      return as(int16_t{});
    case Dtype::kU16:
      return as(uint16_t{});
    case Dtype::kI32:
      return as(int32_t{});
    case Dtype::kU32:
      return as(uint32_t{});
    case Dtype::kI64:
      return as(int64_t{});
    default:
      fail_user("data", "{}: labels are {}; they must be integers, such as I64", path,
                dtype_name(dtype));
  }
}

// out [C, H, W] <- a normalised image; `flip` mirrors it left to right.
template <typename T>
void normalise(const std::byte* image, const ImageOptions& options, bool flip, T* out) {
  const auto [channels, height, width] = options.shape;
  for (int64_t c = 0; c < channels; ++c) {
    const double mean = options.mean.empty() ? 0.0 : options.mean[c];
    const double std = options.std.empty() ? 1.0 : options.std[c];
    std::array<T, 256> value;
    for (size_t x = 0; x < value.size(); ++x)
      value[x] = static_cast<T>((static_cast<double>(x) / 255.0 - mean) / std);
    for (int64_t row = 0; row < height; ++row, image += width, out += width)
      for (int64_t i = 0; i < width; ++i)
        out[flip ? width - 1 - i : i] = value[std::to_integer<size_t>(image[i])];
  }
}

}  // namespace

ImageSource::ImageSource(const std::vector<std::string>& paths, ImageOptions options)
    : options_(std::move(options)) {
  if (paths.empty()) fail_user("data", "no data: at least one safetensors file is needed");
  const int64_t channels = options_.shape[0];
  for (const auto& [key, values] : {std::pair{"mean", options_.mean}, {"std", options_.std}}) {
    if (!values.empty() && static_cast<int64_t>(values.size()) != channels)
      fail_user("data", "data.{}: [{}]; it must have one number for each of the {} channels", key,
                fmt::join(values, ", "), channels);
  }
  for (const std::string& path : paths) open(path);
}

void ImageSource::open(const std::string& path) {
  const SafetensorsHeader header = read_safetensors_header(File::open(path));
  constexpr const char* kRule = "`images` U8 [N, C, H, W] and `labels` [N]";
  const TensorEntry& images = entry_of(header, path, "images", kRule);
  const TensorEntry& labels = entry_of(header, path, "labels", kRule);
  if (images.dtype != Dtype::kU8 || images.shape.size() != 4)
    fail_user("data", "{}: images is {} [{}]; it must be U8 [N, C, H, W]", path,
              dtype_name(images.dtype), fmt::join(images.shape, ", "));
  const std::span<const int64_t> size = std::span(images.shape).subspan(1);
  if (!std::equal(size.begin(), size.end(), options_.shape.begin()))
    fail_user("data",
              "{}: images of {} (channels x height x width); the model takes {}: set "
              "model.num_channels and model.image_size, or make the images fit",
              path, fmt::join(size, " x "), fmt::join(options_.shape, " x "));
  if (labels.shape != std::vector{images.shape[0]})
    fail_user("data", "{}: labels is [{}]; it must be [{}], one for each image", path,
              fmt::join(labels.shape, ", "), images.shape[0]);
  if (images.shape[0] == 0) fail_user("data", "{}: no images: N is 0", path);
  Part part{DataFile(path), header.data_begin + images.begin, num_samples(), images.shape[0]};
  const int64_t bytes = dtype_size(labels.dtype);
  const auto stored = part.file.read(header.data_begin + labels.begin, part.count * bytes);
  for (int64_t i = 0; i < part.count; ++i) {
    const int64_t label = read_integer(stored.data() + i * bytes, labels.dtype, path);
    if (label < 0 || label >= options_.num_labels)
      fail_user("data", "{}: label {} of image {} is no class; labels are 0 to {} (num_labels {})",
                path, label, i, options_.num_labels - 1, options_.num_labels);
    labels_.push_back(label);
  }
  parts_.push_back(std::move(part));
}

std::vector<std::string> ImageSource::fingerprints() const {
  std::vector<std::string> all;
  for (const Part& part : parts_)
    all.push_back(fmt::format("{} images of {} xxh3 {}", part.count,
                              fmt::join(options_.shape, " x "), file_digest(part.file)));
  return all;
}

void ImageSource::read_image(int64_t sample, std::span<std::byte> out) const {
  const auto next = std::upper_bound(parts_.begin(), parts_.end(), sample,
                                     [](int64_t s, const Part& part) { return s < part.first; });
  const Part& part = *(next - 1);
  const auto bytes = static_cast<int64_t>(out.size());
  part.file.read(part.images_begin + (sample - part.first) * bytes, out);
}

MicroBatch ImageSource::load(std::span<const SampleSlot> rows, const LoadOptions& options) const {
  const auto n = static_cast<int64_t>(rows.size());
  const auto [channels, height, width] = options_.shape;
  MicroBatch batch{.targets = at::empty({n, 1}, at::kLong),
                   .weights = at::zeros({n, 1}, options.dtype),
                   .images = at::empty({n, channels, height, width}, options.dtype)};
  const Philox random(options_.seed);
  std::vector<std::byte> image(static_cast<size_t>(channels * height * width));
  for (int64_t row = 0; row < n; ++row) {
    const int64_t sample = rows[row].sample;
    if (sample < 0 || sample >= num_samples())
      fail("data", "image {} of {}", sample, num_samples());
    const bool flip =
        options_.flip && options.first_row &&
        (random.block(static_cast<uint64_t>(*options.first_row + row), stream_of("data.flip"))[0] &
         1) != 0;
    read_image(sample, image);
    const at::Tensor out = batch.images[row];
    if (options.dtype == at::kDouble) {
      normalise(image.data(), options_, flip, out.mutable_data_ptr<double>());
    } else {
      normalise(image.data(), options_, flip, out.mutable_data_ptr<float>());
    }
    batch.targets[row].fill_(labels_[sample]);
    if (rows[row].counts) batch.weights[row].fill_(options.target_weight);
  }
  return batch;
}

}  // namespace tessera
