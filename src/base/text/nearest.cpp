#include "base/text/nearest.h"

#include <algorithm>

namespace tessera {

int edit_distance(std::string_view a, std::string_view b, bool wildcards) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    const bool star = wildcards && a[i - 1] == '*', any = wildcards && a[i - 1] == '?';
    cost[i][0] = cost[i - 1][0] + (star ? 0 : 1);
    for (size_t j = 1; j <= b.size(); ++j) {
      if (star) {
        cost[i][j] = std::min(cost[i - 1][j], cost[i][j - 1]);
        continue;
      }
      const int replace = cost[i - 1][j - 1] + (any || a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

int nearest(std::string_view name, const std::vector<std::string>& candidates) {
  int best = -1;
  int best_distance = std::max<int>(2, static_cast<int>(name.size()) / 3) + 1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    // A short name must not match by replacing all of it.
    const int limit = static_cast<int>(std::max(name.size(), candidates[i].size()));
    const int distance = edit_distance(name, candidates[i]);
    if (distance < best_distance && distance < limit) {
      best = static_cast<int>(i);
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tessera
