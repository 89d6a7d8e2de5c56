#include "parallel/executor/bucket_set.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/keep_fp32.h"

namespace tessera {
namespace {

class TableStage : public Stage {
 public:
  TableStage(const std::string& name, const Mesh& mesh) : Stage(name, mesh.tp(), mesh.tp_rank()) {}
  TensorList forward(const TensorList&, const MicroBatch&) override { return {}; }
  Parameter& add(const std::string& parameter, std::vector<int64_t> shape) {
    return table_.add({parameter, std::move(shape), Placement::replicate(), {}});
  }
  ParameterPack& add_pack(const std::string& a, const std::string& b) {
    return table_.add_pack(
        {{a, {4, 4}, Placement::replicate(), {}}, {b, {4, 4}, Placement::replicate(), {}}});
  }
  void use(Parameter& parameter) { borrow(parameter); }
};

void on_two_ranks(const std::function<void(Mesh&)>& body) {
  run_thread_ranks(2, [&](Communicator& world) {
    Mesh mesh({1, 2, 1}, world.split(0, world.rank(), "world"));
    body(mesh);
  });
}

std::vector<std::string> names(const BucketSet& set, size_t stage) {
  std::vector<std::string> result;
  for (int index : set.of_stage[stage]) result.push_back(set.buckets[index]->name());
  return result;
}

TEST(BucketSet, SortsParametersByWhatTheyNeed) {
  on_two_ranks([](Mesh& mesh) {
    TableStage first("first", mesh), last("last", mesh);
    Parameter& tied = first.add("tied", {8, 4});
    first.add("matrix", {4, 4});
    first.add("norm", {4});
    first.add("frozen", {4}).spec.trainable = false;
    last.add("head", {4});
    last.use(tied);
    resolve_keep_fp32("keys", {"*orm"}, {&first.table(), &last.table()});
    const BucketSet set = make_buckets({&first, &last}, mesh, {.params = at::kBFloat16});
    EXPECT_EQ(names(set, 0),
              (std::vector<std::string>{"first tied", "first", "first fp32", "first frozen"}));
    EXPECT_EQ(names(set, 1), (std::vector<std::string>{"last", "first tied"}));
    // In a run in fp32 there is nothing to keep.
    const BucketSet fp32 = make_buckets({&first, &last}, mesh, {});
    EXPECT_EQ(names(fp32, 0), (std::vector<std::string>{"first tied", "first", "first frozen"}));
  });
}

// 1.0009765625 = 1 + 2^-10 is no bf16 number.
TEST(BucketSet, WhatIsKeptInFp32IsGatheredInFp32) {
  on_two_ranks([](Mesh& mesh) {
    TableStage stage("stage", mesh);
    Parameter& norm = stage.add("norm", {4});
    Parameter& matrix = stage.add("matrix", {4, 4});
    norm.spec.keep_fp32 = true;
    const BucketSet set = make_buckets({&stage}, mesh, {.params = at::kBFloat16});
    std::vector<at::Tensor> slots;
    for (const auto& bucket : set.buckets) {
      at::Tensor(bucket->master()).fill_(1.0009765625);
      slots.push_back(at::zeros({bucket->gather_slot_bytes()}, at::kByte));
      bucket->start_gather(slots.back().data_ptr());
      bucket->wait_gather();
    }
    EXPECT_EQ(norm.value.scalar_type(), at::kFloat);
    EXPECT_EQ(matrix.value.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::all(norm.value == 1.0009765625).item<bool>());
    EXPECT_TRUE(at::all(matrix.value == 1.0).item<bool>());
  });
}

template <typename E>
void expect_error(const std::function<void(Mesh&)>& body, const std::string& part) {
  on_two_ranks([&](Mesh& mesh) {
    try {
      body(mesh);
      ADD_FAILURE() << "no error: " << part;
    } catch (const E& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  });
}

TEST(BucketSet, PartsOfAPackMustAgree) {
  expect_error<UserError>(
      [](Mesh& mesh) {
        TableStage stage("stage", mesh);
        stage.add_pack("q", "k").parts[1]->spec.trainable = false;
        make_buckets({&stage}, mesh, {});
      },
      "q is trained and k is frozen; one matrix product serves both");
  expect_error<Error>(
      [](Mesh& mesh) {
        TableStage stage("stage", mesh);
        stage.add_pack("q", "k").parts[0]->spec.keep_fp32 = true;
        make_buckets({&stage}, mesh, {.params = at::kBFloat16});
      },
      "only one of q and k is kept in fp32");
}

TEST(BucketSet, WhatIsBorrowedMustBelongToAStage) {
  expect_error<Error>(
      [](Mesh& mesh) {
        TableStage owner("owner", mesh), user("user", mesh);
        user.use(owner.add("w", {4}));
        make_buckets({&user}, mesh, {});
      },
      "stage user borrows w, which no stage of the chain owns");
}

TEST(KeepFp32, PartsOfAPackMustAgree) {
  expect_error<UserError>(
      [](Mesh& mesh) {
        TableStage stage("stage", mesh);
        stage.add_pack("q", "k");
        resolve_keep_fp32("precision.keep_fp32", {"q"}, {&stage.table()});
      },
      "only one of q and k is kept in fp32; one matrix product serves both, so name both or "
      "neither in precision.keep_fp32");
}

TEST(KeepFp32, APatternThatMatchesNothingIsAnError) {
  expect_error<UserError>(
      [](Mesh& mesh) {
        TableStage stage("stage", mesh);
        stage.add("model.norm.weight", {4});
        resolve_keep_fp32("precision.keep_fp32", {"*norm.wieght"}, {&stage.table()});
      },
      "precision.keep_fp32: '*norm.wieght' matches no parameter");
}

}  // namespace
}  // namespace tessera
