#include "parallel/tensor_parallel/overlapped.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

namespace tessera {
namespace {

// One hop around the ring: `outgoing` goes to the next rank, `incoming` comes from the one before.
// On the CPU a send ends when its receiver has taken all of it, and until then it blocks the
// group's later operations, the receive among them. If every rank sent first, all would wait for
// ever; so every second rank receives first.
struct Hop {
  Hop(const at::Tensor& outgoing, const at::Tensor& incoming, const TensorParallel& context)
      : tp(context) {
    const int next = (tp.rank() + 1) % tp.size(), before = (tp.rank() + tp.size() - 1) % tp.size();
    if (tp.rank() % 2 == 0) sent = tp.group().send(outgoing, next);
    received = tp.group().recv(incoming, before);
    if (tp.rank() % 2 == 1) sent = tp.group().send(outgoing, next);
  }

  void finish() {
    tp.wait(sent);
    tp.wait(received);
  }

  const TensorParallel& tp;
  Work sent, received;
};

// Chunk number `index` (modulo T) of the rows of x.
at::Tensor chunk(const at::Tensor& x, int index, const TensorParallel& tp) {
  const int64_t rows = x.size(0) / tp.size();
  return x.narrow(0, (index + tp.size()) % tp.size() * rows, rows);
}

at::Tensor ring_gather_product(const at::Tensor& own, const at::Tensor& w, const TensorParallel& tp,
                               const at::Tensor& whole) {
  const at::Tensor y = at::empty({whole.size(0), w.size(1)}, whole.options());
  chunk(whole, tp.rank(), tp).copy_(own);
  for (int step = 0; step < tp.size(); ++step) {
    const int here = tp.rank() - step;
    std::optional<Hop> hop;
    if (step + 1 < tp.size()) hop.emplace(chunk(whole, here, tp), chunk(whole, here - 1, tp), tp);
    at::Tensor rows = chunk(y, here, tp);
    at::mm_out(rows, chunk(whole, here, tp), w);
    if (hop) hop->finish();
  }
  return y;
}

at::Tensor ring_product_sum(const at::Tensor& x, const at::Tensor& w, const TensorParallel& tp) {
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor sum = at::mm(chunk(x, tp.rank() - 1, tp), w).to(wide);
  at::Tensor incoming = at::empty_like(sum);
  for (int step = 1; step < tp.size(); ++step) {
    Hop hop(sum, incoming, tp);
    const at::Tensor product = at::mm(chunk(x, tp.rank() - 1 - step, tp), w);
    hop.finish();
    std::swap(sum, incoming);
    sum.add_(product);
  }
  return sum.to(x.scalar_type());
}

}  // namespace

at::Tensor gather_product(const at::Tensor& own, const at::Tensor& w, const TensorParallel& tp,
                          at::Tensor* whole) {
  at::Tensor gathered;
  at::Tensor y;
  if (tp.rings()) {
    gathered = at::empty({own.size(0) * tp.size(), own.size(1)}, own.options());
    y = ring_gather_product(own, w, tp, gathered);
  } else {
    gathered = tp.gather(own);
    y = at::mm(gathered, w);
  }
  if (whole) *whole = gathered;
  return y;
}

PendingTensor start_product_sum(const at::Tensor& x, const at::Tensor& w,
                                const TensorParallel& tp) {
  if (!tp.rings()) return tp.start_sum(at::mm(x, w));
  tp.own_tokens(x);  // Error unless the ranks divide the tokens
  return tp.done(ring_product_sum(x, w, tp));
}

}  // namespace tessera
