//! Everything that computes a GPT. For now only the CPU reference of layer normalisation.
