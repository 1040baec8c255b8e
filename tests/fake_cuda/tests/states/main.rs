//! The host's messages for every state of a driver, a GPU or a kernel. A process has one driver, and no usable GPU
//! after a fault, so each test runs its scenario in a process of its own.

mod child;
mod cublaslt;
mod cudnn;
mod drivers;
mod faults;
mod gpus;
mod graphs;
mod kept;
mod memory;

// Errors are compared in English.
use headroom_languages as _;
