// A LibTorch program that trains two layers whose parameters live in the daemons. Start one process
// per rank with RANK, WORLD_SIZE, LOCAL_RANK and ZEROD_SOCKET set:
//
//   zerod --ranks 2 --socket /tmp/zerod.sock &
//   for rank in 0 1; do
//     RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 ZEROD_SOCKET=/tmp/zerod.sock two_layers & done

#include <iostream>

#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "client/session.h"
#include "worker/sharded/sharded_sequential.h"

namespace {

void Train() {
  zerod::SessionOptions options = zerod::SessionOptions::FromEnvironment();
  options.job_id = "two_layers";
  const auto session = zerod::Session::Connect(options);

  zerod::ShardedSequential model(*session, {});
  model.AddLayer("hidden", [] { return torch::nn::Linear(16, 64); });
  model.AddLayer("activation", [] { return torch::nn::Tanh(); });
  model.AddLayer("output", [] { return torch::nn::Linear(64, 1); });

  for (int step = 0; step < 100; ++step) {
    const at::Tensor input = at::rand({32, 16});
    const at::Tensor target = input.sum(1, /*keepdim=*/true).sin();
    const at::Tensor loss = at::mse_loss(model.Forward(input), target);
    loss.backward();
    const zerod::StepResult result =
        model.Step({.learning_rate = 1e-2, .max_grad_norm = 1.0, .values = {loss.item<double>()}});
    if (options.rank == 0 && result.step % 20 == 0) {
      std::cout << "step " << result.step << ", loss " << result.values[0] / options.world_size
                << ", gradient norm " << result.grad_norm << '\n';
    }
  }
  session->Detach(/*drop=*/true);
}

}  // namespace

int main() {
  try {
    Train();
    return 0;
  } catch (const zerod::Error& error) {
    std::cerr << "two_layers: " << error.what() << '\n';
    return zerod::ExitCode(error.code());
  }
}
