#pragma once

namespace temper::training {

// What training does with the routers of mixtures.
struct RouterOptions {
  double balance_factor = 0;    // of the load balancing loss; 0: there is none
  bool global_balance = false;  // its loads are those of the whole update, else of each micro-batch
  // After each update the correction bias of an expert that got more tokens than the mean goes down by this,
  // of one that got fewer up (Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-
  // Experts", 2024); 0: biases stay.
  double bias_rate = 0;
};

}  // namespace temper::training
