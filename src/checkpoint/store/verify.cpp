#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/block_reader.h"
#include "checkpoint/store/stored_checkpoint.h"
#include "safetensors/reader.h"

namespace tessera {
namespace {

// The header that other programs read must say what the index says. `pieces`: of the file, in the
// order of their data.
void check_header(const StoredCheckpoint& checkpoint, int32_t number,
                  const std::vector<const StoredPiece*>& pieces) {
  const std::filesystem::path path = checkpoint.file(number);
  SafetensorsHeader header = read_safetensors_header(File::open(path));
  const std::string& listed = checkpoint.manifest().files[static_cast<size_t>(number)].header_xxh3;
  if (header.xxh3 != listed)
    fail_damaged("checkpoint",
                 "{}: the header's checksum is {}, the manifest says {}; it is damaged",
                 path.string(), header.xxh3, listed);
  std::erase_if(header.entries, [](const TensorEntry& entry) { return entry.begin == entry.end; });
  bool same = header.entries.size() == pieces.size();
  for (size_t i = 0; same && i < pieces.size(); ++i) {
    const TensorEntry& entry = header.entries[i];
    same = entry.name == checkpoint.name(*pieces[i]) && entry.dtype == pieces[i]->dtype &&
           header.data_begin + entry.begin == pieces[i]->offset &&
           entry.end - entry.begin == pieces[i]->bytes();
  }
  if (!same)
    fail_damaged("checkpoint", "{}: the header's entries are not the pieces that the index lists",
                 path.string());
}

}  // namespace

PiecesByFile pieces_by_file(const StoredCheckpoint& checkpoint) {
  PiecesByFile of_file(checkpoint.manifest().files.size());
  for (const StoredPiece& piece : checkpoint.index().pieces())
    of_file[static_cast<size_t>(piece.file)].push_back(&piece);
  for (auto& pieces : of_file)
    std::sort(pieces.begin(), pieces.end(),
              [](const auto* a, const auto* b) { return a->offset < b->offset; });
  return of_file;
}

void verify_file(const std::shared_ptr<const StoredCheckpoint>& checkpoint,
                 const PiecesByFile& pieces, size_t file, const std::function<void()>& each_part) {
  BlockReader reader(checkpoint);
  reader.set_each_part(each_part);
  check_header(*checkpoint, static_cast<int32_t>(file), pieces[file]);
  for (const StoredPiece* piece : pieces[file])
    for (int64_t at = 0; at < piece->bytes();) at = reader.read(*piece, at, piece->bytes()).end;
  reader.finish();
}

}  // namespace tessera
