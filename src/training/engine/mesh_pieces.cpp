#include "training/engine/mesh_pieces.h"

#include <set>
#include <string>

#include "base/error.h"
#include "models/good_tps.h"
#include "models/model_options.h"
#include "models/registry.h"
#include "parallel/executor/bucket_set.h"
#include "parallel/imagined_mesh.h"
#include "parallel/keep_fp32.h"
#include "training/engine/piece_replica.h"

namespace tessera {
namespace {

AnyModel model_of(const Manifest& manifest, int tp) {
  AnyModel model = model_from_hf(manifest.model, "the checkpoint's model");
  check_tensors(manifest, model_tensors(*model));
  if (const std::string why = model->why_not_tp(tp); !why.empty())
    fail_user("checkpoint", "tp: {}; {}; for this model these work: {}", tp, why,
              good_tps(*model, 4096));
  return model;
}

// The run's precision.keep_fp32, which only runs in halves have; empty where the checkpoint is of
// no run.
std::vector<std::string> keep_fp32_of(const Manifest& manifest) {
  const nlohmann::json::json_pointer key("/precision/keep_fp32");
  if (!manifest.config.is_object() || !manifest.config.contains(key)) return {};
  std::vector<std::string> patterns;
  for (const nlohmann::json& pattern : manifest.config[key]) {
    if (!pattern.is_string())
      fail_damaged("checkpoint", "the manifest's config.precision.keep_fp32 holds {}, no pattern",
                   pattern.dump());
    patterns.push_back(pattern.get<std::string>());
  }
  return patterns;
}

}  // namespace

// The buckets of the ranks with one place in tp: the others differ in the slices of them alone.
struct MeshPieces::Place {
  Place(const Manifest& manifest, const AnyModel& model, const MeshShape& shape, int tp_rank)
      : mesh(imagined_mesh(shape, tp_rank)),
        stages(model->make_stages(/*seq_len=*/1, mesh, ModelOptions())) {
    std::set<std::string> frozen;
    for (const TensorInfo& tensor : manifest.tensors)
      if (!tensor.states.empty()) frozen.insert(tensor.name);
    std::vector<Stage*> chain;
    std::vector<ParameterTable*> tables;
    for (const auto& stage : stages) {
      for (Parameter& parameter : stage->table().parameters())
        parameter.spec.trainable = !frozen.contains(parameter.spec.name);
      chain.push_back(stage.get());
      tables.push_back(&stage->table());
    }
    const std::vector<std::string> wide = keep_fp32_of(manifest);
    resolve_keep_fp32("precision.keep_fp32", wide, tables);
    ShardingPolicy policy;
    if (!wide.empty()) policy.params = at::kBFloat16;  // or fp16: the buckets are the same
    buckets = plan_buckets(chain, policy).buckets;
  }

  Mesh mesh;
  std::vector<std::unique_ptr<Stage>> stages;
  std::vector<BucketPlan::Bucket> buckets;
};

MeshPieces::MeshPieces(const Manifest& manifest, const MeshShape& mesh)
    : states_(manifest.states), mesh_(mesh) {
  const AnyModel model = model_of(manifest, mesh.tp);
  for (int tp_rank = 0; tp_rank < mesh.tp; ++tp_rank)
    places_.push_back(std::make_unique<Place>(manifest, model, mesh, tp_rank));
}

MeshPieces::~MeshPieces() = default;

std::vector<Piece> MeshPieces::of_rank(int rank) const {
  const int tp_rank = rank % mesh_.tp, dp_rank = rank / mesh_.tp;
  const int shard = dp_rank % mesh_.dp_shard, replicate = dp_rank / mesh_.dp_shard;
  std::vector<Piece> pieces;
  for (const BucketPlan::Bucket& bucket : places_[static_cast<size_t>(tp_rank)]->buckets) {
    const BucketLayout layout(bucket.packs, mesh_.dp_shard);
    const int64_t each = layout.numel / mesh_.dp_shard;
    const std::vector<Segment> segments = layout.segments(shard * each, (shard + 1) * each, 0);
    for (size_t i = 0; i < states_.size(); ++i) {
      if (i > 0 && !bucket.options.trainable) break;  // frozen: no moments
      for (const Segment& segment : segments) {
        Piece piece;
        piece.tensor = segment.parameter->spec.name;
        piece.state = states_[i];
        piece.slice = segment.slice;
        set_replica(piece, *segment.parameter, mesh_, replicate, tp_rank);
        pieces.push_back(std::move(piece));
      }
    }
  }
  return pieces;
}

}  // namespace tessera
