#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.h"
#include "data/image_source.h"
#include "safetensors/writer.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::user_error;

// A file of `count` images of 2 x 2 x 3: byte k of image i is 16 i + k. The label of image i is
// first_label + i.
std::string write_images(const std::string& path, int64_t count, int64_t first_label = 0,
                         Dtype label_dtype = Dtype::kI64, std::vector<int64_t> shape = {2, 2, 3}) {
  shape.insert(shape.begin(), count);
  SafetensorsWriter writer(path, {{"images", Dtype::kU8, shape}, {"labels", label_dtype, {count}}},
                           {});
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < 12; ++k) {
      const auto value = static_cast<uint8_t>(16 * i + k);
      writer.append(&value, 1);
    }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = first_label + i;
    writer.append(&label, dtype_size(label_dtype));  // little-endian: the first bytes
  }
  writer.finish();
  return path;
}

const ImageOptions kOptions{{2, 2, 3}, 10, {}, {}, false, 7};

TEST(ImageSource, ReadsImagesOfSeveralFilesAndNormalises) {
  TemporaryFolder folder;
  ImageOptions options = kOptions;
  options.mean = {0.5, 0.25};
  options.std = {0.5, 2.0};
  const ImageSource source({write_images(folder / "a.safetensors", 3),
                            write_images(folder / "b.safetensors", 2, 4, Dtype::kU8)},
                           options);
  EXPECT_EQ(source.num_samples(), 5);
  EXPECT_EQ(source.positions_per_sample(), 1);
  const std::vector<SampleSlot> rows = {{4, true}, {2, true}, {4, false}};
  const MicroBatch batch = source.load(rows, {.target_weight = 0.25});
  EXPECT_TRUE(at::equal(batch.targets, at::tensor({5, 2, 5}, at::kLong).view({3, 1})));
  EXPECT_TRUE(at::equal(batch.weights, at::tensor({0.25F, 0.25F, 0.0F}).view({3, 1})));
  EXPECT_FALSE(batch.tokens.defined());
  const at::Tensor raw = at::arange(12, at::kDouble).view({2, 2, 3});
  const at::Tensor mean = at::tensor({0.5, 0.25}, at::kDouble).view({2, 1, 1});
  const at::Tensor std = at::tensor({0.5, 2.0}, at::kDouble).view({2, 1, 1});
  const at::Tensor first = (((raw + 16) / 255 - mean) / std).to(at::kFloat);
  const at::Tensor second = (((raw + 32) / 255 - mean) / std).to(at::kFloat);
  EXPECT_TRUE(at::allclose(batch.images[0], first, 1e-6));
  EXPECT_TRUE(at::allclose(batch.images[1], second, 1e-6));
  EXPECT_EQ(source.load(rows, {.dtype = at::kDouble}).images.scalar_type(), at::kDouble);
}

// The mirror image of about half the rows, which ones by place in the run alone; none in
// evaluation.
TEST(ImageSource, FlipsByPlaceInTheRunAndOnlyInTraining) {
  TemporaryFolder folder;
  ImageOptions options = kOptions;
  options.flip = true;
  const std::string path = write_images(folder / "a.safetensors", 1);
  const ImageSource source({path}, options);
  const std::vector<SampleSlot> rows(200, {0, true});
  const at::Tensor plain = source.load(rows, {}).images;
  EXPECT_TRUE(at::equal(plain, ImageSource({path}, kOptions).load(rows, {.first_row = 0}).images));
  const at::Tensor train = source.load(rows, {.first_row = 40}).images;
  int flipped = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const bool same = at::equal(train[i], plain[i]);
    EXPECT_TRUE(same || at::equal(train[i], plain[i].flip(-1)));
    flipped += !same;
  }
  EXPECT_GT(flipped, 70);
  EXPECT_LT(flipped, 130);
  // Another split into micro-batches makes the same images.
  EXPECT_TRUE(at::equal(source.load(std::span(rows).first(50), {.first_row = 90}).images,
                        train.narrow(0, 50, 50)));
  options.seed = 8;
  EXPECT_FALSE(at::equal(ImageSource({path}, options).load(rows, {.first_row = 40}).images, train));
}

TEST(ImageSource, FingerprintsTellDataApart) {
  TemporaryFolder folder;
  const auto print = [&](const std::string& name, int64_t first_label) {
    return ImageSource({write_images(folder / name, 3, first_label)}, kOptions).fingerprints()[0];
  };
  EXPECT_EQ(print("a.safetensors", 0), print("b.safetensors", 0));
  EXPECT_NE(print("a.safetensors", 0), print("c.safetensors", 1));
}

TEST(ImageSource, RefusesWhatIsNoSuchFile) {
  TemporaryFolder folder;
  const auto refusal = [&](const std::string& path, const ImageOptions& options = kOptions) {
    return user_error([&] { ImageSource source({path}, options); });
  };
  EXPECT_THAT(refusal(folder / "absent"), HasSubstr("absent"));
  testing::write_file(folder / "text", "not a safetensors file at all");
  EXPECT_THAT(refusal(folder / "text"), HasSubstr("text"));
  testing::write_file(folder / "empty", "");
  EXPECT_THAT(refusal(folder / "empty"), HasSubstr("empty"));
  EXPECT_THAT(refusal(write_images(folder / "label", 3, 8)),
              AllOf(HasSubstr("label 10 of image 2"), HasSubstr("0 to 9")));
  EXPECT_THAT(refusal(write_images(folder / "negative", 2, -1)), HasSubstr("label -1 of image 0"));
  EXPECT_THAT(refusal(write_images(folder / "float", 2, 0, Dtype::kF32)),
              HasSubstr("labels are F32; they must be integers"));
  EXPECT_THAT(refusal(write_images(folder / "shape", 2, 0, Dtype::kI64, {3, 2, 2})),
              AllOf(HasSubstr("images of 3 x 2 x 2"), HasSubstr("the model takes 2 x 2 x 3")));
  EXPECT_THAT(refusal(write_images(folder / "flat", 2, 0, Dtype::kI64, {12})),
              HasSubstr("images is U8 [2, 12]; it must be U8 [N, C, H, W]"));
  EXPECT_THAT(refusal(write_images(folder / "none", 0)), HasSubstr("none: no images: N is 0"));
  ImageOptions three = kOptions;
  three.mean = {0.5, 0.5, 0.5};
  EXPECT_THAT(refusal(write_images(folder / "good", 2), three),
              HasSubstr("one number for each of the 2 channels"));
  SafetensorsWriter other(folder / "other", {{"pixels", Dtype::kU8, {1}}}, {});
  other.append("x", 1);
  other.finish();
  EXPECT_THAT(refusal(folder / "other"), HasSubstr("no tensor images"));
}

}  // namespace
}  // namespace tessera
